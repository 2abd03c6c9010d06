"""Reads for people and programs."""
