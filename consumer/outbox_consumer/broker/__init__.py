"""The consumer's side of the broker: one thread that owns one connection, receives hints and tells their fate."""
