"""What is read of a million ended jobs, and how fast: `make scale`."""
