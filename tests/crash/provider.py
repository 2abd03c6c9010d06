"""The other side: a provider in a process of its own, whose books say what it really did.

Nobody who is killed or frozen has a hand in those books: a request is read whole before they are touched, on a thread
of its own. Run as `python -m crash.provider FILE`, which writes its address into FILE once it listens. One serves any
number of cells; each has its own books, named in the path.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import uuid
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

__all__ = ["Books", "Provider", "main", "server"]

_CLIENT_S = 30.0
# Longer than any cell: a client that wakes up with half a request sent is still heard.
_REQUEST_S = 600.0


@dataclass
class Books:
    """What was done and heard for one cell. `known` are the keys that a charge has been made under, with its id."""

    done: list[tuple[str, str]] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    heard: int = 0

    def charge(self, key: str) -> str:
        """Charge once per key, and answer the same whenever it is asked again."""
        self.heard += 1
        if key not in self.known:
            self.known[key] = self._do(key)
        return self.known[key]

    def mail(self, key: str) -> str:
        """Send a mail, whether or not it was sent before: nothing keeps it from doing that twice."""
        self.heard += 1
        return self._do(key)

    def find(self, key: str) -> str | None:
        """Return the id of what was first done under a key, or None."""
        return next((made for other, made in self.done if other == key), None)

    def _do(self, key: str) -> str:
        made = uuid.uuid4().hex
        self.done.append((key, made))
        return made


class _Library:
    """The books of all cells. Each call is whole before the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._books: dict[str, Books] = defaultdict(Books)

    def charge(self, cell: str, key: str) -> object:
        with self._lock:
            return self._books[cell].charge(key)

    def mail(self, cell: str, key: str) -> object:
        with self._lock:
            return self._books[cell].mail(key)

    def find(self, cell: str, key: str) -> object:
        with self._lock:
            return self._books[cell].find(key)

    def books(self, cell: str, _: str) -> object:
        with self._lock:
            return asdict(self._books[cell])


class _Desk(BaseHTTPRequestHandler):
    """One request: POST /CELL/charge/KEY, POST /CELL/mail/KEY, GET /CELL/find/KEY, GET /CELL/books/-."""

    timeout = _REQUEST_S
    library: _Library

    def do_POST(self) -> None:
        """Do a thing."""
        self._answer(("charge", "mail"))

    def do_GET(self) -> None:
        """Tell what was done."""
        self._answer(("find", "books"))

    def _answer(self, allowed: tuple[str, ...]) -> None:
        parts = [unquote(part) for part in self.path.split("/")]
        if len(parts) != 4 or parts[2] not in allowed:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = json.dumps(getattr(self.library, parts[2])(parts[1], parts[3])).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Log nothing: the books say more."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # All consumers of a cell may ask at the same moment.
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Take it as a matter of course: clients die here in the middle of everything."""


def server() -> ThreadingHTTPServer:
    """Return a provider with empty books that listens on a free port of loopback; `serve_forever` is the caller's."""
    return _Server(("127.0.0.1", 0), type("Desk", (_Desk,), {"library": _Library()}))


class Provider:
    """The provider as seen from one cell. `url` is its address with the name of the cell's books."""

    def __init__(self, url: str) -> None:
        self.url = url

    def charge(self, key: str) -> str:
        """Charge under a key that it knows again."""
        return str(self._ask("POST", "charge", key))

    def mail(self, key: str) -> str:
        """Send a mail once more."""
        return str(self._ask("POST", "mail", key))

    def find(self, key: str) -> str | None:
        """Return the id of what was done under a key, or None."""
        found = self._ask("GET", "find", key)
        return None if found is None else str(found)

    def books(self) -> Books:
        """Return the cell's books: each `done` is a thing that really happened."""
        told = self._ask("GET", "books", "-")
        return Books([(key, made) for key, made in told["done"]], told["known"], told["heard"])

    def _ask(self, method: str, what: str, key: str) -> object:
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_CLIENT_S)
        try:
            connection.request(method, f"{address.path}/{what}/{quote(key, safe='')}")
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise RuntimeError(f"the provider answered {answer.status}")
            return json.load(answer)
        finally:
            connection.close()


def main(file: Path) -> None:
    """Serve until ended from outside."""
    with server() as serving:
        fresh = file.with_suffix(".new")
        fresh.write_text(f"http://127.0.0.1:{serving.server_address[1]}", encoding="ascii")
        fresh.replace(file)
        serving.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
