"""Erasing what is over."""
