"""What a process tells about itself: the contract of its figures, how they are kept, and the port that shows them.

`contract` names every figure once. `series` keeps them, `exposition` writes them down, `port` answers requests; none of
these touches the database. No figure holds a tenant, an id, a payload or a secret.
"""
