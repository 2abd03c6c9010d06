"""The two server addresses, read the way people really write them.

A password may hold `% @ : / # ? [ ] ' "` and spaces, raw or percent-encoded (how: `outbox.settings.urlparts`). What
stays ambiguous is decided like this:

- a percent sign followed by two hexadecimal digits is always an encoded byte; write a literal one as `%25`;
- the user's name ends at the first raw colon;
- a raw password that itself reads as the end of an address (`x@host/db?sslmode=require`) must be
  percent-encoded.

No message raised here repeats any part of the address, since any part may belong to a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from sqlalchemy import Engine, ExceptionContext, create_engine, event

from outbox.errors import SettingsError
from outbox.processes.connection_trouble import is_connection_trouble
from outbox.processes.forking import let_go_in_children
from outbox.settings.broker_address import AMQP_VARIABLE, AmqpAddress, amqp_parameters
from outbox.settings.urlparts import UrlParts, split_url

__all__ = [
    "AMQP_VARIABLE",
    "AmqpAddress",
    "amqp_parameters",
    "database_conninfo",
    "has_libpq_address",
    "sqlalchemy_engine",
]

DATABASE_VARIABLE = "OUTBOX_DATABASE_URL"

# Each wait on the network is bounded, unless the address says otherwise: 10 s to connect to one host, and
# about 20 s until a silent peer counts as dead. Name and value, and the libpq variable that has its own
# say.
_BOUNDS = (
    ("connect_timeout", "10", "PGCONNECT_TIMEOUT"),
    ("keepalives", "1", None),
    ("keepalives_idle", "10", None),
    ("keepalives_interval", "5", None),
    ("keepalives_count", "2", None),
    ("tcp_user_timeout", "20000", None),
)
_ADDRESS_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE")

_DATABASE_SCHEME = re.compile(r"postgres(?:ql)?(?:\+\w{1,40})?://", re.IGNORECASE)
_ANY_SCHEME = re.compile(r"\s*['\"]?[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_AND_PORT = re.compile(r"(?P<name>[\w.-]+):(?P<port>\d{1,5})")


def database_conninfo(
    url: str | None,
    *,
    application_name: str = "outbox",
    variable: str = DATABASE_VARIABLE,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return libpq keywords for `psycopg.connect(**keywords)`, each network wait bounded.

    `url` may be a `postgresql://` or `postgres://` URL, with or without SQLAlchemy's `+driver`, with
    several hosts, with a socket folder (`postgresql:///db?host=/run/postgresql`), or libpq's `host=…
    password=…` text. With None, libpq's own variables decide (PGHOST, PGSERVICE, PGPASSWORD, …), if one
    that names a server or database is set.

    A keyword of the address wins over the defaults here; so do PGCONNECT_TIMEOUT and PGAPPNAME. An entry of
    a service file doesn't: libpq lets a given keyword win, so set it in the address instead.

    Raises:
        SettingsError: no address at all, or one that can't be read. Names `variable`, never a part of the
            address.
    """
    environ = os.environ if environ is None else environ
    text = (url or "").strip()
    if text:
        keywords = _database_keywords(text, variable)
    elif has_libpq_address(environ):
        keywords = {}
    else:
        raise SettingsError(
            f"{variable} is not set; give it a value like postgresql://user:password@host/database, "
            "or set libpq's PGHOST, PGDATABASE or PGSERVICE"
        )
    known = _libpq_keywords()
    # Statements and payloads are Unicode, whatever PGCLIENTENCODING says for other programs.
    keywords["client_encoding"] = "utf8"
    for keyword, value, own_variable in (*_BOUNDS, ("application_name", application_name, "PGAPPNAME")):
        if keyword in known and keyword not in keywords and not (own_variable and environ.get(own_variable)):
            keywords[keyword] = value
    return keywords


def has_libpq_address(environ: Mapping[str, str]) -> bool:
    """Tell whether libpq's own variables name a server, a service or a database."""
    return any(environ.get(name) for name in _ADDRESS_VARIABLES)


def sqlalchemy_engine(url: str | None, *, application_name: str = "outbox", **options: Any) -> Engine:
    """Return an Engine on psycopg for any address that `database_conninfo` reads.

    SQLAlchemy never sees the URL: the parsed keywords go to the driver as they are, so no character is
    decoded twice and no error can show it. READ COMMITTED and `hide_parameters` are on unless `options`
    (those of `create_engine`) say otherwise. A server that refuses to write, as one that a failover has left behind
    does, empties the pool like a connection that was lost.

    Raises:
        SettingsError: as `database_conninfo`.
    """
    keywords: dict[str, Any] = database_conninfo(url, application_name=application_name)
    # The driver prepares nothing by itself on the server: a transaction pooler may stand in between.
    keywords |= {"prepare_threshold": None} | options.pop("connect_args", {})
    defaults = {"hide_parameters": True, "isolation_level": "READ COMMITTED", "use_native_hstore": False}
    engine = create_engine("postgresql+psycopg://", connect_args=keywords, **(defaults | options))
    event.listen(engine, "connect", lambda connection, _record: let_go_in_children(connection))
    event.listen(engine, "handle_error", _leave_bad_servers)
    return engine


def _leave_bad_servers(context: ExceptionContext) -> None:
    """Have the pool forget its connections also where they still answer: all of them lead to that server."""
    if is_connection_trouble(context.original_exception):
        context.is_disconnect = True


def _database_keywords(text: str, variable: str) -> dict[str, str]:
    scheme = _DATABASE_SCHEME.match(text)
    if scheme is not None:
        known = _libpq_keywords() | {"ssl"}
        return _url_keywords(split_url(text[scheme.end() :], variable, known, path_holds_slashes=False), variable)
    if _ANY_SCHEME.match(text) or "=" not in text:
        raise SettingsError(
            f"{variable} is neither a PostgreSQL URL nor libpq's keywords; write "
            "postgresql://user:password@host/database "
            "or host=… dbname=… user=… password=… (without quotes around the whole)"
        )
    try:
        return {keyword: str(value) for keyword, value in conninfo_to_dict(text).items()}
    except psycopg.Error:
        # libpq's message repeats the word that it tripped over, which may be a piece of the password.
        raise SettingsError(
            f"{variable} can't be read as libpq's keywords; quote values that hold spaces or quotes, like "
            "password='two words' "
            "with \\' and \\\\ inside, or write a URL"
        ) from None


def _url_keywords(parts: UrlParts, variable: str) -> dict[str, str]:
    given = {"user": parts.user, "password": parts.password, "dbname": parts.path[1:]}
    keywords = {keyword: value for keyword, value in given.items() if value}
    hosts = [host for host in parts.hosts if any(host)]
    asked_hosts = [_asked_host(value) for name, value in parts.options if name == "host"]
    if asked_hosts:  # as in libpq, an option wins over the same fact further left
        hosts = asked_hosts
    if hosts:
        keywords["host"] = ",".join(host for host, _ in hosts)
    if any(port for _, port in hosts):
        keywords["port"] = ",".join(port for _, port in hosts)
    seen: set[str] = set()
    for name, value in parts.options:
        if name == "host":
            continue
        if name in seen:
            raise SettingsError(f"{variable} gives the option {name} twice; keep one")
        seen.add(name)
        if name == "ssl":  # JDBC's and asyncpg's name
            keywords["sslmode"] = "require" if value == "true" else value
        else:
            keywords[name] = value
    return keywords


def _asked_host(value: str) -> tuple[str, str]:
    """Split SQLAlchemy's way of several hosts: `?host=a:5432&host=b:5432`."""
    found = _HOST_AND_PORT.fullmatch(value)
    return (found["name"], found["port"]) if found else (value, "")


@cache
def _libpq_keywords() -> frozenset[str]:
    """Return the keywords that the installed libpq knows; they differ between its versions."""
    return frozenset(option.keyword.decode() for option in Conninfo.get_defaults())
