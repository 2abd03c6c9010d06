"""What the ready map makes of dependencies' exceptions: real ones where the library is here, named ones where not."""

from __future__ import annotations

import errno
import socket
import sqlite3
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from outbox_consumer import ThrottledError
from outbox_consumer.basis.errors import MisuseError
from outbox_consumer.failing.failures import error_class
from outbox_consumer.failing.http_errors import http_error, retry_after_s
from outbox_consumer.failing.known_errors import KNOWN, known_error
from outbox_schemas import HandlerError, NameRefused, PayloadError, QueueFull, SealBroken

DOCUMENT = Path(__file__).parents[3] / "docs" / "failures.md"
REQUEST = httpx.Request("GET", "https://example.org/")
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def named(package: str, name: str, *bases: type[BaseException], **attributes: Any) -> BaseException:
    """Return an exception of a class that bears the names of a library's own."""
    made = type(name, bases or (Exception,), attributes)
    made.__module__ = f"{package}.exceptions"
    error: BaseException = made("it failed")
    return error


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    """Return what httpx raises for an answer."""
    response = httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return httpx.HTTPStatusError("no", request=REQUEST, response=response)


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return an exception with a cause."""
    error.__cause__ = cause
    return error


def wrapped(origin: BaseException, **options: Any) -> sa.exc.DBAPIError:
    """Return a driver's error as SQLAlchemy raises it."""
    return sa.exc.DBAPIError("SELECT 1", None, origin, **options)


UNVERIFIED = ssl.SSLCertVerificationError("self-signed certificate")
CASES: list[tuple[BaseException, str | None]] = [
    (httpx.ReadTimeout("slow"), "retryable timeout"),
    (httpx.PoolTimeout("slow"), "retryable timeout"),
    (httpx.ConnectError("refused"), "retryable connection_error"),
    (httpx.RemoteProtocolError("cut"), "retryable connection_error"),
    (httpx.ProxyError("no"), "retryable proxy_error"),
    (caused(httpx.ConnectError("tls"), UNVERIFIED), "terminal tls_certificate"),
    (httpx.InvalidURL("what"), None),
    (answered(500), "retryable http_500"),
    (answered(404), "terminal http_404"),
    (answered(429), "throttled http_429"),
    (TimeoutError(), "retryable timeout"),
    (ConnectionRefusedError(), "retryable connection_refused"),
    (ConnectionResetError(), "retryable connection_error"),
    (BrokenPipeError(), "retryable connection_error"),
    (socket.gaierror(socket.EAI_AGAIN, "again"), "retryable name_resolution"),
    (OSError(errno.EHOSTUNREACH, "no route"), "retryable host_unreachable"),
    (OSError(errno.ENOSPC, "full"), None),
    (FileNotFoundError("x"), None),
    (ssl.SSLError("handshake"), "retryable tls"),
    (UNVERIFIED, "terminal tls_certificate"),
    (HandlerError("on_uncertain"), "terminal handler_misdeclared"),
    (PayloadError("request", "is NaN"), "terminal handler_misdeclared"),
    (NameRefused("effect", "has 300 characters"), "terminal handler_misdeclared"),
    (MisuseError("here may not commit"), "terminal handler_misdeclared"),
    (SealBroken("checkpoint"), "terminal seal_broken"),
    (
        QueueFull(
            queue="q", tenant=None, measure="backlog", figure=7, limit=5, policy="refuse", age_s=1.0, drain_s=30.0
        ),
        "throttled queue_full",
    ),
    (urllib.error.URLError(TimeoutError()), "retryable timeout"),
    (urllib.error.URLError("no host given"), "retryable connection_error"),
    (urllib.error.HTTPError("u", 503, "busy", Message(), None), "retryable http_503"),
    (psycopg.errors.SerializationFailure("x"), "retryable sqlstate_40001"),
    (psycopg.errors.DeadlockDetected("x"), "retryable sqlstate_40P01"),
    (psycopg.errors.LockNotAvailable("x"), "retryable sqlstate_55P03"),
    (psycopg.errors.QueryCanceled("x"), "retryable sqlstate_57014"),
    (psycopg.errors.AdminShutdown("x"), "retryable sqlstate_57P01"),
    (psycopg.errors.TooManyConnections("x"), "retryable sqlstate_53300"),
    (psycopg.errors.ReadOnlySqlTransaction("x"), "retryable sqlstate_25006"),
    (psycopg.errors.UniqueViolation("x"), None),
    (psycopg.errors.UndefinedTable("x"), None),
    (psycopg.OperationalError("connection refused"), "retryable database_unreachable"),
    (psycopg.ProgrammingError("x"), None),
    (wrapped(psycopg.errors.SerializationFailure("x")), "retryable sqlstate_40001"),
    (wrapped(psycopg.OperationalError("x")), "retryable database_unreachable"),
    (wrapped(psycopg.errors.UniqueViolation("x")), None),
    (wrapped(sqlite3.OperationalError("no such table: x")), None),
    (wrapped(named("pymysql", "OperationalError"), connection_invalidated=True), "retryable database_unreachable"),
    (wrapped(psycopg.InterfaceError("closed"), connection_invalidated=True), "retryable database_unreachable"),
    (sa.exc.TimeoutError("pool"), "retryable database_pool_timeout"),
    (sa.exc.NoResultFound("x"), None),
    (named("asyncpg", "PostgresError", sqlstate="40001"), "retryable sqlstate_40001"),
    (named("psycopg2", "Error", pgcode="23505"), None),
    (named("requests", "ConnectTimeout", type(named("requests", "Timeout"))), "retryable timeout"),
    (named("requests", "ConnectionError"), "retryable connection_error"),
    (named("requests", "HTTPError", response=SimpleNamespace(status_code=502, headers={})), "retryable http_502"),
    (named("requests", "HTTPError", response=None), None),
    (named("urllib3", "MaxRetryError", reason=TimeoutError()), "retryable timeout"),
    (named("urllib3", "MaxRetryError", reason=named("urllib3", "SSLError")), "retryable tls"),
    (named("aiohttp", "ClientResponseError", status=409, headers=None), "retryable http_409"),
    (ValueError("x"), None),
    (KeyError("x"), None),
]


@pytest.mark.parametrize(("error", "expected"), CASES, ids=lambda case: type(case).__name__)
def test_known_exceptions_mean_what_the_map_says(error: BaseException, expected: str | None) -> None:
    """Class and code of each; what nobody knows stays unknown."""
    found = known_error(error)
    assert (None if found is None else f"{error_class(found)} {found.code}") == expected


def raised(call: Callable[[str], object], url: str) -> BaseException:
    """Return what a call raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, it is looked at afterwards
        call(url)
    return caught.value


def test_real_clients_of_a_dead_port() -> None:
    """What httpx, requests and the standard library really raise of a refused connection is in the map."""
    requests = pytest.importorskip("requests")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        errors = [raised(call, url) for call in (httpx.get, requests.get, urllib.request.urlopen)]
    codes = [str(getattr(known_error(error), "code", None)) for error in errors]
    assert codes == ["connection_error", "connection_error", "connection_refused"]


STATUSES = {
    "throttled": {429},
    "retryable": {408, 409, 421, 423, 425, 500, 502, 503, 504, 507, 508, 599},
    "terminal": {301, 304, 400, 401, 402, 403, 404, 405, 410, 413, 415, 422, 451, 501, 505},
    "none": {100, 200, 204, 299, 600, 999},
}


@pytest.mark.parametrize("expected", STATUSES)
def test_every_status_has_its_class(expected: str) -> None:
    """The table of the guide, without `Retry-After`."""
    for status in STATUSES[expected]:
        found = http_error(status, {}.get)
        assert ("none" if found is None else error_class(found)) == expected, status


@pytest.mark.parametrize("status", [429, 503, 413])
def test_retry_after_makes_a_refusal_a_throttle(status: int) -> None:
    """Where the header means something, its wait is what the next try is put off by at least."""
    found = http_error(status, {"Retry-After": "17"}.get)
    assert isinstance(found, ThrottledError)
    assert found.retry_after == timedelta(seconds=17)


WAITS: list[tuple[dict[str, str], float | None]] = [
    ({"Retry-After": "120"}, 120),
    ({"Retry-After": " 0 "}, 0),
    ({"Retry-After": "99999999999999999999"}, 1e20),
    ({"Retry-After": "1.5"}, None),
    ({"Retry-After": "-1"}, None),
    ({"Retry-After": "٣"}, None),
    ({"Retry-After": "soon"}, None),
    ({"Retry-After": ""}, None),
    ({}, None),
    ({"Retry-After": "Sun, 29 Nov 2026 12:02:00 GMT"}, 120),
    ({"Retry-After": "Sunday, 29-Nov-26 12:02:00 GMT"}, 120),
    ({"Retry-After": "Sun Nov 29 12:02:00 2026"}, 120),
    ({"Retry-After": "Sun, 29 Nov 2026 11:00:00 GMT"}, 0),
    ({"Retry-After": "Sun, 29 Nov 2026 13:02:00 GMT", "Date": "Sun, 29 Nov 2026 13:00:00 GMT"}, 120),
    ({"Retry-After": "Sun, 29 Nov 2026 12:02:00 GMT", "Date": "yesterday"}, 120),
    ({"Retry-After": "Sun, 32 Nov 2026 12:02:00 GMT"}, None),
    ({"Retry-After": "Fri, 31 Dec 99999999 23:59:59 GMT"}, None),
]


@pytest.mark.parametrize(("headers", "expected"), WAITS)
def test_both_forms_of_retry_after(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, and a date in its three forms, counted from the answer's own date where it has one."""
    assert retry_after_s(headers.get, now=NOW) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_header_can_hurt(after: str, date: str) -> None:
    """Whatever stands there: no error, and no wait below nothing."""
    found = retry_after_s({"Retry-After": after, "Date": date}.get)
    assert found is None or found >= 0


def test_chains_of_causes_are_followed_within_a_bound() -> None:
    """A chain that leads in a circle ends the search."""
    first, second = httpx.ConnectError("a"), httpx.ConnectError("b")
    first.__cause__, second.__cause__ = second, first
    assert str(getattr(known_error(first), "code", None)) == "connection_error"


def test_the_guide_names_every_class_of_the_map() -> None:
    """Whoever looks a library up finds it, and nothing is promised that the map doesn't hold."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in KNOWN if f"`{name}`" not in text] == []
