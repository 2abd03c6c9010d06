"""What goes wrong when a server is wanted: one family, so that a caller can say `except NoServer`."""


class NoServer(RuntimeError):  # noqa: N818 - a public name
    """A server could not be found, started or reached; the message says what was tried and what helps."""


class NoDatabase(NoServer):
    """No PostgreSQL is to be had on this machine."""


class NoBroker(NoServer):
    """No RabbitMQ is to be had on this machine; a caller may go on without a broker."""


class NotOurs(NoServer):
    """Stopping, killing or wiping was asked of a server that this package did not start."""


class StartFailed(NoServer):
    """A server was started and did not become ready; the message ends with the tail of its log."""
