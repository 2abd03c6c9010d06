"""Secrets that are planted in every place where one may be, and a search for them in everything that comes out."""
