"""A proxy that cuts a connection at the worst moment: the server has committed, the client never hears of it."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_CHUNK = 262_144
_ANSWER_S = 10.0
_READY = b"Z\x00\x00\x00\x05"
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Trigger:
    """Cuts where a client of this application name sends this text."""

    application: str
    text: str


class CommitCutter:
    """Forwards connections on loopback to one PostgreSQL, and cuts up to `times` answers. Use as a context manager.

    The request goes through, the server's whole answer to it is awaited and thrown away, and the client's connection
    is reset. Text is looked for in each packet as it comes, which holds for small statements on loopback.
    """

    def __init__(self, url: str, trigger: Trigger, times: int) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._trigger = trigger
        self._left = times
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        account = parts.netloc.rpartition("@")[0]
        netloc = f"{account}@127.0.0.1:{self._listener.getsockname()[1]}"
        # Encrypted, no text could be found.
        query = "&".join(filter(None, (parts.query, "sslmode=disable&gssencmode=disable")))
        self.url = urlunsplit(parts._replace(netloc=netloc, query=query))
        self.cut = 0
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Start to serve."""
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        self._closed.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        self._listener.settimeout(0.2)
        while not self._closed.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                client, _ = self._listener.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target, timeout=5) as server:
            ours = False
            while not self._closed.is_set():
                readable, _, _ = select.select([client, server], [], [], 0.2)
                for end in readable:
                    data = end.recv(_CHUNK)
                    if not data:
                        return
                    if end is server:
                        client.sendall(data)
                        continue
                    ours = ours or f"application_name\0{self._trigger.application}\0".encode() in data
                    server.sendall(data)
                    if ours and self._due(data):
                        self._swallow(client, server)
                        return

    def _due(self, data: bytes) -> bool:
        if self._trigger.text.encode() not in data:
            return False
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def _swallow(self, client: socket.socket, server: socket.socket) -> None:
        server.settimeout(_ANSWER_S)
        answer = b""
        while _READY not in answer[-6:]:
            data = server.recv(_CHUNK)
            if not data:
                break
            answer += data
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with self._lock:
            self.cut += 1
