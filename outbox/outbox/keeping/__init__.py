"""What time alone brings about, and what pauses, limits and keys need of relays and consumers in turns."""
