"""What a worker owns and writes: leases, the ends of attempts, effects, and who the workers are."""
