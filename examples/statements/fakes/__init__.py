"""Two remote services that the example needs and can't have for real: a payment provider and a mail relay.

They are servers of their own, reached over HTTP, with the faults of real ones; each keeps a ledger of what it really
did, which is what the demonstration believes.
"""
