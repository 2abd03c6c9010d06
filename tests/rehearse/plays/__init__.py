"""The troubles, a module for each page, named like it."""
