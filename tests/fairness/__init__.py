"""Shares, limits and waits on real servers, with real processes: `make fairness`."""
