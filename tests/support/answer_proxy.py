"""A TCP proxy that lets one request through and never its answer: the commit whose outcome nobody was told."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

_RESET = struct.pack("ii", 1, 0)


class AnswerProxy:
    """Forwards connections on 127.0.0.1 to one server, in clear. Use as a context manager.

    After `arm(marker)` the next request that holds the marker reaches the server; when its answer comes, the
    connection is reset instead.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._marker: bytes | None = None
        self._doomed: set[socket.socket] = set()
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.swallowed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> Self:
        """Return the proxy, which serves already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything and wait for the threads."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            ends = list(self._ends)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def arm(self, marker: bytes) -> None:
        """Swallow the answer to the next request that holds `marker`."""
        with self._lock:
            self.swallowed.clear()
            self._marker = marker

    def _start(self, target: object, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name="answer-proxy")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._ends |= {client, server}
            requests = self._start(self._requests, client, server)
            self._start(self._answers, client, server, requests)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                with self._lock:
                    if self._marker is not None and self._marker in data:
                        self._marker = None
                        self._doomed.add(server)
                server.sendall(data)
        self._end(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, requests: threading.Thread) -> None:
        swallowed = False
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if server in self._doomed:
                    swallowed = True
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    break
                client.sendall(data)
        self._end(client, server)
        requests.join(5)
        client.close()
        server.close()
        if swallowed:
            self.swallowed.set()

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            self._ends -= {client, server}
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
