"""The port: what it answers, and that nothing that comes in over it harms the process or keeps others waiting."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
import warnings
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from outbox.errors import SettingsError
from outbox.settings.listen_address import Address, read_address
from outbox.telemetry.port import CONNECTIONS, Port
from outbox.telemetry.request import HEAD_BYTES, Reply
from support.waiting import until

WITHIN_S = 0.5
TAKEN = rf"^telemetry\.listen: 127\.0\.0\.1:\d+ can't be listened on \({os.strerror(errno.EADDRINUSE)}\); name"
LARGE = "x" * 3_000_000
# More than the system buffers for a client that takes nothing.
HUGE = "x" * 20_000_000


def _answer(path: str) -> Reply:
    if path == "/broken":
        raise RuntimeError("unwanted-secret-in-an-error")
    return Reply(HTTPStatus.OK, {"/large": LARGE, "/huge": HUGE}.get(path, f"you asked for {path}\n"))


@pytest.fixture
def port() -> Iterator[Port]:
    """Yield a port on the loopback interface that gives each connection half a second."""
    port = Port(Address("127.0.0.1", 0), _answer, within_s=WITHIN_S)
    port.start()
    yield port
    port.close()
    assert not port._thread.is_alive()


def _connect(port: Port) -> socket.socket:
    return socket.create_connection(port.address, timeout=10)


def _all(sock: socket.socket) -> bytes:
    received = b""
    while data := sock.recv(65_536):
        received += data
    return received


def _ask(port: Port, request: bytes) -> bytes:
    with _connect(port) as sock:
        sock.sendall(request)
        return _all(sock)


def _get(port: Port, path: str = "/x") -> bytes:
    return _ask(port, f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())


def test_a_get_is_answered_and_the_connection_ends(port) -> None:
    """Status, length and body; a query is left out; HEAD has no body."""
    answer = _get(port, "/x?y=1")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nyou asked for /x\n")
    assert _ask(port, b"HEAD /x HTTP/1.0\r\n\r\n").endswith(b"Connection: close\r\n\r\n")
    assert _get(port, "/large").endswith(LARGE.encode())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /x HTTP/1.1\r\n\r\n", 405),
        (b"DELETE /x HTTP/1.1\r\n\r\n", 405),
        (b"get /x HTTP/1.1\r\n\r\n", 400),
        (b"GET x HTTP/1.1\r\n\r\n", 400),
        (b"GET /x HTTP/2\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /x HTTP/1.1\r\nA: " + b"a" * HEAD_BYTES, 431),
        (b"G" * (HEAD_BYTES + 1), 431),
    ],
)
def test_what_is_no_request_of_ours_is_refused(port, request_, status) -> None:
    """Other methods, other protocols, garbage and endless headers each have their answer, and the port goes on."""
    assert _ask(port, request_).startswith(f"HTTP/1.1 {status} ".encode())
    assert b"200 OK" in _get(port)


def test_an_answer_that_fails_says_so_without_its_reason(port) -> None:
    """The error's text stays in the log."""
    answer = _get(port, "/broken")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"unwanted" not in answer
    assert b"200 OK" in _get(port)


@pytest.mark.parametrize("sent", [b"", b"GET /x HT", b"GET /x HTTP/1.1\r\nA: b\r\n"])
def test_a_client_that_does_not_finish_is_let_go_in_time(port, sent) -> None:
    """However it dawdles, the connection ends, and nobody waits for it meanwhile."""
    with _connect(port) as slow:
        slow.sendall(sent)
        assert b"200 OK" in _get(port)
        began = time.monotonic()
        assert _all(slow) == b""
        assert time.monotonic() - began < WITHIN_S + 5


def test_a_client_that_does_not_read_is_let_go_in_time(port) -> None:
    """A large answer that nobody takes holds neither the port nor its memory."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(10)
        deaf.connect(port.address)
        deaf.sendall(b"GET /huge HTTP/1.1\r\n\r\n")
        until(lambda: len(port._clients) == 1)
        assert b"200 OK" in _get(port)
        until(lambda: not port._clients)


def test_many_connections_are_bounded_and_the_next_is_served(port) -> None:
    """Of more than it holds the oldest make room: a probe is answered whoever else keeps connections open."""
    idle = [_connect(port) for _ in range(3 * CONNECTIONS)]
    try:
        assert b"200 OK" in _get(port)
        assert len(port._clients) <= CONNECTIONS
    finally:
        for sock in idle:
            sock.close()


def test_a_client_that_breaks_off_harms_nothing(port) -> None:
    """A reset in the middle of anything is the end of that connection alone."""
    for request in (b"", b"GET /x", b"GET /large HTTP/1.1\r\n\r\n"):
        sock = _connect(port)
        sock.sendall(request)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        sock.close()
    assert b"200 OK" in _get(port)


def test_a_port_that_is_taken_is_refused_with_what_to_do(port) -> None:
    """The error names setting, address and remedy."""
    with pytest.raises(SettingsError, match=TAKEN):
        Port(port.address, _answer)
    with pytest.raises(SettingsError, match=r"can't be listened on \((?!Unknown error)\w.*\); name"):
        Port(Address("nowhere.invalid", 0), _answer)


def test_its_socket_stays_in_this_process(port) -> None:
    """A program that a handler starts doesn't keep the port."""
    assert not os.get_inheritable(port._listener.fileno())


def test_a_forked_child_keeps_nothing_of_it() -> None:
    """While it lives, the port goes on with the connections that it had, and is free again once it has been closed."""
    port = Port(Address("127.0.0.1", 0), _answer, within_s=30)
    port.start()
    waiting = _connect(port)
    until(lambda: len(port._clients) == 1)
    ended, end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a handler may do so beside threads
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            os.close(end)
            os.read(ended, 1)
        finally:
            os._exit(0)
    os.close(ended)
    try:
        waiting.sendall(b"GET /x HTTP/1.1\r\n\r\n")
        assert b"200 OK" in _all(waiting)  # to its end, which comes though the child lives
        assert b"200 OK" in _get(port)
        address = port.address
        port.close()
        Port(address, _answer).close()
    finally:
        os.close(end)
        os.waitpid(child, 0)
        waiting.close()
        port.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", Address("127.0.0.1", 9464)),
        (":9464", Address("127.0.0.1", 9464)),
        ("192.0.2.1:1", Address("192.0.2.1", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        ("host-1.example:80", Address("host-1.example", 80)),
    ],
)
def test_an_address_is_read_and_written(text, address) -> None:
    """A port alone is the loopback interface's."""
    assert read_address(text) == address
    assert read_address(str(address)) == address


@pytest.mark.parametrize("text", ["", "x", "65536", "-1", "::1:80", "[::1]", "a b:1", "http://x:1", "1.2.3.4:"])
def test_what_is_no_address_is_refused(text) -> None:
    """One error, which says what is wanted."""
    with pytest.raises(ValueError, match="must be a port from 0 to 65535"):
        read_address(text)
