"""One job that starts when a set of others has ended."""
