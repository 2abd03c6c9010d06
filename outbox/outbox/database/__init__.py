"""Connections, statements and what they need: nothing here knows what a job is for."""
