"""The `outbox` program: its root, what its commands share, and the commands of this room."""
