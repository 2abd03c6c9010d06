"""A person's decision to try failed jobs again: previewed, audited, paced."""
