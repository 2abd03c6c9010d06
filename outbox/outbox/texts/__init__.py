"""Texts that leave the process: secrets and control characters out of them, spans and numbers in them. Pure."""
