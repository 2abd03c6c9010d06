"""What the release loop waits for: a word from another thread of this process, or from a writer's commit."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Bell"]


class Bell(threading.Event):
    """An event whose waiter looks at a file descriptor as well. For one waiter; anybody may set it."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.also: Callable[[], int | None] = lambda: None
        """Returns the descriptor that ends a wait by becoming readable, or None."""

    def set(self) -> None:
        """Ring."""
        if self.is_set():
            return
        super().set()
        with suppress(OSError):  # it is full, so that the waiter wakes anyway; or it is closed
            self._writer.send(b"\0")

    def clear(self) -> None:
        """Be silent again."""
        super().clear()
        with suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it rings, or the descriptor is readable; return whether it has rung."""
        if not self.is_set():
            poll = select.poll()
            for descriptor in (self._reader.fileno(), self.also()):
                if descriptor is not None:
                    poll.register(descriptor, select.POLLIN)
            poll.poll(None if timeout is None else timeout * 1000)
        return self.is_set()

    def close(self) -> None:
        """Close its descriptors. Whoever rings later is not heard."""
        self._reader.close()
        self._writer.close()
