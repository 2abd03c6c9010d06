"""Handlers in processes of their own: what a child may use, how the two processes talk, and how one ends."""
