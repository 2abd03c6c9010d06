"""A TCP proxy on loopback that a test can cut, close, freeze and thaw: a network that fails on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class Proxy:
    """Forwards connections on 127.0.0.1 to one server. Use as a context manager.

    `down` refuses new connections and cuts the old ones; `freeze` keeps everything open and forwards nothing.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._threads: list[threading.Thread] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._serve()

    def __enter__(self) -> Self:
        """Return the proxy, which serves already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything and wait for the threads."""
        self.down()
        self._flowing.set()
        for thread in self._threads:
            thread.join(5)

    def down(self) -> None:
        """Refuse new connections and cut the old ones."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def up(self) -> None:
        """Serve again on the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def cut(self) -> None:
        """Cut every connection; new ones are welcome."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Forward nothing more, on old and new connections."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Forward again, first what was held back."""
        self._flowing.set()

    def _serve(self) -> None:
        self._start(self._accept, self._listener)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name="proxy")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs.add((client, server))
            self._start(self._pump, client, server)
            self._start(self._pump, server, client)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_CHUNK):
                self._flowing.wait()
                sink.sendall(data)
        except OSError:
            pass
        finally:
            # Each pump closes what it reads from; shutting both ends down makes the other one stop too.
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            source.close()
