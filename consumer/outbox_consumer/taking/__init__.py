"""From hints to leases: what is claimed, for which group of queues, and when."""
