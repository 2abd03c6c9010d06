"""The socket that a process listens on."""

from __future__ import annotations

import os
import socket

from outbox.errors import SettingsError
from outbox.settings.listen_address import Address

__all__ = ["listening"]

_BACKLOG = 64


def listening(address: Address) -> socket.socket:
    """Return a socket that listens there and never blocks. Raises `SettingsError` where that can't be."""
    try:
        family, _, _, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(place[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        # A resolver's numbers are its own; the text that comes with the system's may repeat the address.
        system = error.errno if not isinstance(error, socket.gaierror) else None
        reason = (os.strerror(system) if system else error.strerror) or type(error).__name__
        raise SettingsError(
            f"telemetry.listen: {address} can't be listened on ({reason}); name an address of this machine and a port"
            " that is free, or leave it unset"
        ) from None
    listener.setblocking(False)
    return listener
