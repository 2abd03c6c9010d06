"""Changes that an operator makes to jobs and queues: each audited, with who and why."""
