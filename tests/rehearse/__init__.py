"""Rehearsals: each runbook's trouble is made on real servers, and the page's own commands are followed to its end."""
