"""The little of HTTP that a port for probes and scrapers needs: one GET a connection. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus

__all__ = ["HEAD_BYTES", "Reply", "Request", "head_ended", "read_request", "written"]

HEAD_BYTES = 8192
"""A request whose line and headers are longer is refused."""
_LINE = re.compile(rb"([A-Z]{1,20}) (/[\x21-\x7e]*) HTTP/1\.[01]")
_ENDS = (b"\r\n\r\n", b"\n\n")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. `path` has no query. `bodiless`: the answer's headers alone are wanted."""

    path: str
    bodiless: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    status: HTTPStatus
    text: str
    content_type: str = "text/plain; charset=utf-8"


def head_ended(head: bytes | bytearray) -> bool:
    """Tell whether a request's headers are all there."""
    return any(end in head for end in _ENDS)


def read_request(head: bytes) -> Request | Reply:
    """Return the request, or what to answer to one that is none of ours. Headers and a body are not looked at."""
    found = _LINE.fullmatch(head.split(b"\n", 1)[0].rstrip(b"\r"))
    if found is None:
        return _refusal(HTTPStatus.BAD_REQUEST)
    if found[1] not in {b"GET", b"HEAD"}:
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
    return Request(found[2].partition(b"?")[0].decode("ascii"), bodiless=found[1] == b"HEAD")


def written(reply: Reply, *, bodiless: bool = False) -> bytes:
    """Return an answer as it goes over the wire; the connection ends with it."""
    body = reply.text.encode("utf-8", "replace")
    allow = "Allow: GET, HEAD\r\n" if reply.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\n"
        f"Content-Type: {reply.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{allow}"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (b"" if bodiless else body)


def _refusal(status: HTTPStatus) -> Reply:
    return Reply(status, f"{status.phrase}\n")
