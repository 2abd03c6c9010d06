"""What a user subclasses and is given: handlers, the context of a job, and the register of handlers."""
