"""`outbox top`: what waits and runs, live. `reading` reads a picture of it, `state` decides what a key does, `screen`
makes lines of both, and `terminal` is the only one that touches a terminal.
"""
