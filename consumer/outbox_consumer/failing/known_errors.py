"""What the exceptions of common libraries mean: a ready map for `Handler.classify`.

Classes are told by the names of their package and of themselves, so that nothing is imported that the handlers don't
use. The nearest base class in the map decides. Whatever is not in it is unknown.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from outbox_consumer.basis.errors import RetryableError, TerminalError, ThrottledError
from outbox_consumer.failing.http_errors import http_error

__all__ = ["KNOWN", "Meaning", "known_error"]

Meaning: TypeAlias = RetryableError | TerminalError | ThrottledError
Rule: TypeAlias = Callable[[Any], Meaning | None]

_CHAIN = 10
# Connection lost or refused, resources short, the server stopping, starting or failing over.
_SQLSTATE_CLASSES = ("08", "40", "53", "57", "58")
# Read-only node, time-outs of idle transactions and sessions, object in use, lock not available.
_SQLSTATES = frozenset({"25006", "25P03", "25P04", "55006", "55P03"})
# The drivers, and SQLAlchemy's own classes for what asyncpg raises.
_POSTGRESQL = frozenset({"psycopg", "psycopg2", "psycopg2cffi", "asyncpg", "pg8000", "sqlalchemy"})
_UNREACHABLE = frozenset(
    {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET, errno.EADDRNOTAVAIL}
)


def known_error(error: BaseException) -> Meaning | None:
    """Return what an exception means, or None if nobody here knows. The text stays with the exception.

    Raises whatever the exception's own attributes raise.
    """
    for base in type(error).__mro__:
        rule = KNOWN.get(f"{base.__module__.partition('.')[0]}.{base.__qualname__}")
        found = None if rule is None else rule(error)
        if found is not None:
            return found
    return None


def _retryable(code: str) -> Rule:
    return lambda _error: RetryableError(code=code)


def _terminal(code: str) -> Rule:
    return lambda _error: TerminalError(code=code)


def _connection(code: str) -> Rule:
    """Make a rule for connections that fail. A certificate that doesn't hold stays so until somebody mends it."""
    return lambda error: _certificate(error) if _is_certificate(error) else RetryableError(code=code)


def _certificate(_error: object) -> Meaning:
    return TerminalError(code="tls_certificate")


def _is_certificate(error: BaseException) -> bool:
    return any(type(cause).__name__ == "SSLCertVerificationError" for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what is behind it: requests and urllib3 keep that in `reason` or in their arguments."""
    waiting, seen = [error], 0
    while waiting and seen < _CHAIN:
        found = waiting.pop(0)
        seen += 1
        yield found
        behind = (found.__cause__, found.__context__, getattr(found, "reason", None), *found.args[:2])
        waiting += [item for item in behind if isinstance(item, BaseException)]


def _response(error: Any) -> Meaning | None:
    """Httpx and requests: the answer hangs on the exception."""
    answer = getattr(error, "response", None)
    return None if answer is None else http_error(int(answer.status_code), answer.headers.get)


def _own_status(error: Any) -> Meaning | None:
    """Aiohttp and the standard library: the exception is the answer."""
    status = getattr(error, "status", None) or getattr(error, "code", None)
    headers = getattr(error, "headers", None)
    if not isinstance(status, int):
        return None
    return http_error(status, (lambda _name: None) if headers is None else headers.get)


def _reason(error: Any) -> Meaning | None:
    """Urllib's URLError and urllib3's MaxRetryError: what went wrong is the reason."""
    reason = getattr(error, "reason", None)
    found = known_error(reason) if isinstance(reason, BaseException) and reason is not error else None
    return found or _connection("connection_error")(error)


def _database(error: Any) -> Meaning | None:
    """Any PostgreSQL driver: its SQLSTATE decides, and without one the class alone, as for a refused connection."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str) and len(state) == 5:
        transient = state.startswith(_SQLSTATE_CLASSES) or state in _SQLSTATES
        return RetryableError(code=f"sqlstate_{state}") if transient else None
    # SQLAlchemy wraps any database's errors. SQLite's class of that name, for one, is that of a missing table, too.
    bases = [base for base in type(error).__mro__ if base.__name__ == "OperationalError"]
    if any(base.__module__.partition(".")[0] in _POSTGRESQL for base in bases):
        return RetryableError(code="database_unreachable")
    return None


def _wrapped(error: Any) -> Meaning | None:
    """SQLAlchemy: what the driver raised decides."""
    origin = getattr(error, "orig", None)
    found = _database(origin) or known_error(origin) if isinstance(origin, BaseException) else None
    if found is None and getattr(error, "connection_invalidated", False):
        return RetryableError(code="database_unreachable")
    return found


def _system(error: Any) -> Meaning | None:
    return RetryableError(code="host_unreachable") if getattr(error, "errno", None) in _UNREACHABLE else None


def _queue_full(error: Any) -> Meaning:
    """Wait for a follow-up's queue as long as its backlog needs, within the policy's cap."""
    return ThrottledError(code="queue_full", retry_after=error.drain_s)


_RULES: dict[str, Rule] = {
    # A call that is declared wrongly (an effect's `on_uncertain`, say) is so until it is deployed anew.
    "outbox_schemas.HandlerError": _terminal("handler_misdeclared"),
    # What JSON can't hold, or no limit allows, and what no transaction permits, is so in the next try, too.
    "outbox_schemas.InvalidSubmission": _terminal("handler_misdeclared"),
    "outbox_consumer.MisuseError": _terminal("handler_misdeclared"),
    "outbox_schemas.RefMismatch": _terminal("ref_mismatch"),
    "outbox_schemas.RefCutShort": _retryable("ref_cut_short"),
    "outbox_schemas.SealBroken": _terminal("seal_broken"),
    "outbox_schemas.QueueFull": _queue_full,
    "builtins.TimeoutError": _retryable("timeout"),
    "builtins.ConnectionRefusedError": _retryable("connection_refused"),
    "builtins.ConnectionError": _retryable("connection_error"),
    "builtins.OSError": _system,
    "socket.gaierror": _retryable("name_resolution"),
    "ssl.SSLCertVerificationError": _certificate,
    "ssl.SSLError": _connection("tls"),
    "http.BadStatusLine": _retryable("connection_error"),
    "http.IncompleteRead": _retryable("connection_error"),
    "urllib.HTTPError": _own_status,
    "urllib.URLError": _reason,
    "httpx.TimeoutException": _retryable("timeout"),
    "httpx.NetworkError": _connection("connection_error"),
    "httpx.RemoteProtocolError": _retryable("connection_error"),
    "httpx.ProxyError": _connection("proxy_error"),
    "httpx.HTTPStatusError": _response,
    "httpcore.TimeoutException": _retryable("timeout"),
    "httpcore.NetworkError": _connection("connection_error"),
    "httpcore.RemoteProtocolError": _retryable("connection_error"),
    "requests.Timeout": _retryable("timeout"),
    "requests.ProxyError": _connection("proxy_error"),
    "requests.ConnectionError": _connection("connection_error"),
    "requests.ChunkedEncodingError": _retryable("connection_error"),
    "requests.HTTPError": _response,
    "urllib3.TimeoutError": _retryable("timeout"),
    "urllib3.ProxyError": _connection("proxy_error"),
    "urllib3.SSLError": _connection("tls"),
    "urllib3.NewConnectionError": _connection("connection_error"),
    "urllib3.ProtocolError": _retryable("connection_error"),
    "urllib3.MaxRetryError": _reason,
    "aiohttp.ClientResponseError": _own_status,
    "aiohttp.ClientConnectionError": _connection("connection_error"),
    "aiohttp.ClientPayloadError": _retryable("connection_error"),
    "psycopg.Error": _database,
    "psycopg2.Error": _database,
    "asyncpg.PostgresError": _database,
    "sqlalchemy.DBAPIError": _wrapped,
    "sqlalchemy.TimeoutError": _retryable("database_pool_timeout"),
}

KNOWN: Mapping[str, Rule] = MappingProxyType(_RULES)
"""Rules by package and class."""
