"""One end of the socket between consumer and child, with its frames. Whole frames are sent, by any thread."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

from outbox_consumer.isolation.frames import Frames, Kind

__all__ = ["Line"]

_CHUNK = 256 * 1024


class Line:
    """A socket that carries frames.

    Args:
        ours: a connected stream socket; this object closes it.
        limit: how large a body from the other end may be.
        send_s: how long a frame may take to be sent; None: for ever. The other end reads on a thread of its own.
    """

    def __init__(self, ours: socket.socket, limit: int, send_s: float | None) -> None:
        ours.settimeout(send_s)
        self._socket = ours
        self._frames = Frames(limit)
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait on."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send a whole frame. Raises `OSError` if the other end is gone or does not read."""
        with self._sending:
            self._socket.sendall(data)

    def readable(self, timeout_s: float | None) -> bool:
        """Wait for something to read, at most so long (None: for ever)."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(None if timeout_s is None else timeout_s * 1000))

    def receive(self) -> Iterator[tuple[Kind, bytes]] | None:
        """Read once, what has arrived or else what comes next; None once the other end is gone.

        Raises:
            FrameTooLarge: while iterating; nothing of what follows can be read.
        """
        try:
            data = self._socket.recv(_CHUNK)
        except ConnectionError:
            return None
        return self._frames.feed(data) if data else None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
