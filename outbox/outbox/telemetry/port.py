"""The port: a daemon thread that answers small HTTP requests, whatever comes in.

One thread with a selector serves all connections, so that none waits for a slow one, and each is bounded: in the length
of its headers, in the time from its start to its end, and in number; where there are too many, the oldest makes room.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from outbox.logs import RateLimited
from outbox.settings.listen_address import Address
from outbox.telemetry.listening import listening
from outbox.telemetry.request import HEAD_BYTES, Reply, head_ended, read_request, written

__all__ = ["CONNECTIONS", "Port"]

log = logging.getLogger("outbox.telemetry")
_quiet = RateLimited(log)

CONNECTIONS = 32
"""As many connections may be open at once."""
_CHUNK = 4096
_LOOK_S = 0.25
# Where the system takes no more connections (no file descriptors are left), it is asked again after so long.
_PAUSE_S = 0.1

Answer = Callable[[str], Reply]

_ports: weakref.WeakSet[Port] = weakref.WeakSet()


@dataclass(slots=True, eq=False)
class _Client:
    """One connection."""

    until: float
    head: bytearray = field(default_factory=bytearray)
    left: memoryview = field(default_factory=lambda: memoryview(b""))


class Port:
    """Listens at once, and answers from `start` to `close`. A forked child of the process has no part in it.

    Args:
        answer: makes the answer to a path. It is called on the port's thread, and must not wait for anything.
        within_s: seconds that a connection may take in all.

    Raises:
        SettingsError: the address can't be listened on.
    """

    def __init__(self, address: Address, answer: Answer, *, within_s: float = 5.0) -> None:
        self._listener = listening(address)
        self._answer = answer
        self._within_s = within_s
        self._clients: OrderedDict[socket.socket, _Client] = OrderedDict()
        self._selector = selectors.DefaultSelector()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-port", daemon=True)
        _ports.add(self)

    @property
    def address(self) -> Address:
        """Where it listens, with the port that it was given."""
        host, port = self._listener.getsockname()[:2]
        return Address(host, port)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        log.info("health and metrics are shown", extra={"address": str(self.address)})

    def close(self, timeout_s: float = 1.0) -> None:
        """Answer no more."""
        self._stop.set()
        if self._thread.ident is None:
            self._listener.close()
        else:
            self._thread.join(max(timeout_s, 0))

    def let_go(self) -> None:
        """Close what a forked child has inherited. Nothing is shut down or unregistered, so that the parent goes on."""
        for sock in [*self._clients, self._listener]:
            sock.close()
        self._clients.clear()
        self._selector.close()

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._stop.is_set():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - nothing that comes in over a port may end it
                _quiet.log(logging.ERROR, "the port failed and goes on", exc_info=error)
                self._stop.wait(_PAUSE_S)
        for sock in [*self._clients, self._listener]:
            self._end(sock)
        self._selector.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(_LOOK_S):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)  # noqa: S101 - nothing else is registered
            if sock is self._listener:
                self._accept()
            elif (client := self._clients.get(sock)) is not None:
                self._serve(sock, client)
        now = time.monotonic()
        # In the order in which they came, and each has the same time.
        for sock in [sock for sock, client in self._clients.items() if client.until <= now]:
            self._end(sock)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # whoever it was has gone
        except OSError as error:
            _quiet.log(logging.WARNING, "no connection can be taken", reason=type(error).__name__)
            self._stop.wait(_PAUSE_S)
            return
        while len(self._clients) >= CONNECTIONS:
            self._end(next(iter(self._clients)))
        sock.setblocking(False)
        self._clients[sock] = _Client(time.monotonic() + self._within_s)
        self._selector.register(sock, selectors.EVENT_READ)

    def _serve(self, sock: socket.socket, client: _Client) -> None:
        try:
            if client.left:
                self._send(sock, client)
            else:
                self._receive(sock, client)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end(sock)

    def _receive(self, sock: socket.socket, client: _Client) -> None:
        data = sock.recv(_CHUNK)
        client.head += data
        if not data:
            self._end(sock)
        elif len(client.head) > HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._reply(sock, client, Reply(status, f"{status.phrase}\n"))
        elif head_ended(client.head):
            request = read_request(bytes(client.head))
            if isinstance(request, Reply):
                self._reply(sock, client, request)
            else:
                self._reply(sock, client, self._answered(request.path), bodiless=request.bodiless)

    def _answered(self, path: str) -> Reply:
        try:
            return self._answer(path)
        except Exception as error:  # noqa: BLE001 - the asker hears that it failed, and the log why
            _quiet.log(logging.ERROR, "a request could not be answered", exc_info=error)
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, "the answer could not be made; see the log\n")

    def _reply(self, sock: socket.socket, client: _Client, reply: Reply, *, bodiless: bool = False) -> None:
        client.left = memoryview(written(reply, bodiless=bodiless))
        self._selector.modify(sock, selectors.EVENT_WRITE)
        self._send(sock, client)

    def _send(self, sock: socket.socket, client: _Client) -> None:
        client.left = client.left[sock.send(client.left) :]
        if not client.left:
            # What the other side has sent beyond its headers must not turn our answer into a reset.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
                sock.recv(HEAD_BYTES)
            self._end(sock)

    def _end(self, sock: socket.socket) -> None:
        self._clients.pop(sock, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(sock)
        sock.close()


def _after_fork_in_child() -> None:
    """Let go of the ports: a child that outlives the process would keep the next one from listening there."""
    for port in list(_ports):
        port.let_go()
    _ports.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
