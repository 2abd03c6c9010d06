"""Measurements of outbox-relay on real servers and real processes. Run by `make bench`; never by the test suite."""
