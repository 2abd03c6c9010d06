"""What the other rooms stand on: errors that a handler raises, threads and loops, guarded sessions, counters."""
