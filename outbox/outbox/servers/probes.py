"""Whether something listens on a port, and whether it is an AMQP 0-9-1 broker that answers."""

import socket

_HEADER = b"AMQP\x00\x00\x09\x01"
_START = b"\x01\x00\x00"  # a method frame on channel 0: connection.start


def speaks_amqp(host: str, port: int, timeout: float = 2.0) -> bool:
    """Tell whether a broker greets a client within `timeout` seconds.

    An open port proves nothing: a forwarder accepts before its broker is up, and a broker that boots or is in
    trouble may accept and stay silent.
    """
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(_HEADER)
            return connection.recv(len(_START)) == _START
    except OSError:
        return False


def listens(host: str, port: int, timeout: float = 1.0) -> bool:
    """Tell whether something accepts TCP connections there."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True
