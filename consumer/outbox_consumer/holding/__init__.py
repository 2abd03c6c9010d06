"""What this process holds: hints not decided yet, leases, and claims whose answers were lost."""
