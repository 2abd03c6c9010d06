"""Limits and bounds of queues and tenants: rows that change at run time, audited."""
