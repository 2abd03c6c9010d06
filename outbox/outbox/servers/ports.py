"""TCP ports from the kernel, held for as long as a private server may want to come back on them."""

import socket

LOOPBACK = "127.0.0.1"


class Port:
    """A free port on loopback that no other program is given while this object is open.

    The socket stays bound with SO_REUSEADDR and never listens. A server that sets the same option
    (PostgreSQL, epmd and Erlang do) can listen beside it, but the kernel hands the number to nobody else
    while that server is down: neither to another listener nor as the source port of a client (a client that
    retries on loopback can otherwise end up connected to itself). Connections are refused meanwhile, as
    they should be.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((LOOPBACK, 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give the port back to the kernel; closing twice does nothing."""
        self._socket.close()


def free_port() -> int:
    """Return a port that was free a moment ago, for servers that can't share it with a holder."""
    port = Port()
    port.close()
    return port.number
