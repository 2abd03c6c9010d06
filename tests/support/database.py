"""One test's own migrated database, and everything that a test opens on it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import sql

from outbox.database.link import Link
from outbox.database.statements import Statements
from outbox.servers import databases
from outbox.settings.identifiers import schema_identifier
from outbox.settings.urls import sqlalchemy_engine
from support.clock import DatabaseClock
from support.servers import SCHEMA, Template

AT_END: list[Callable[[Database], None]] = []
"""What is done with each test's database before it is dropped."""


class Database:
    """A fresh database. What `link`, `engine` and `connect` open is closed with the test."""

    def __init__(self, url: str, schema: str = SCHEMA) -> None:
        self.url = url
        self.schema = schema
        self.statements = Statements(schema)
        self._stack = ExitStack()

    def link(self, name: str = "test", **options: Any) -> Link:
        """Return a new link."""
        link = Link(self.url, self.statements, name=name, **options)
        self._stack.callback(link.close)
        return link

    def engine(self, **options: Any) -> sa.Engine:
        """Return a new psycopg engine as the product makes its own."""
        return self.keep(sqlalchemy_engine(self.url, **options))

    def keep(self, engine: sa.Engine) -> sa.Engine:
        """Dispose of an engine with the test."""
        self._stack.callback(engine.dispose)
        return engine

    def driver_url(self, driver: str) -> sa.URL:
        """Return the URL for SQLAlchemy with another driver."""
        return sa.make_url(databases.plain(self.url)).set(drivername=f"postgresql+{driver}")

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Return a new raw connection, in autocommit mode unless told otherwise."""
        connection = psycopg.connect(self.url, **({"autocommit": True} | options))
        self._stack.callback(connection.close)
        return connection

    @cached_property
    def raw(self) -> psycopg.Connection[Any]:
        """One autocommit connection for looking around."""
        return self.connect(application_name="test/raw")

    @cached_property
    def clock(self) -> DatabaseClock:
        """The driven clock; the first use puts it in place."""
        return DatabaseClock(self.url, self.schema)

    def rows(self, query: str, *parameters: Any) -> list[Any]:
        """Run SQL in which `{s}` stands for the quoted schema, and return its rows."""
        cursor = self.raw.execute(self.sql(query, escaped=bool(parameters)), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, query: str, *parameters: Any) -> Any:
        """Return the first column of the first row."""
        return self.rows(query, *parameters)[0][0]

    def count(self, query: str, *parameters: Any) -> int:
        """Return how many rows a table (`jobs`), a filter of one (`jobs WHERE …`) or a whole query has."""
        if not query.lstrip().upper().startswith(("SELECT", "WITH")):
            query = f"SELECT 1 FROM {{s}}.{query}"
        return int(self.value(f"SELECT count(*) FROM ({query}) AS counted", *parameters))

    def close(self) -> None:
        """Close what the test has opened."""
        self._stack.close()

    def sql(self, query: str, *, escaped: bool = False) -> bytes:
        """Return the query with the quoted schema in the place of `{s}`; `escaped` where it has parameters."""
        quoted = schema_identifier(self.schema)
        return query.replace("{s}", quoted.replace("%", "%%") if escaped else quoted).encode()


_CLONE = "CREATE DATABASE {name} TEMPLATE {template}"
# From 15 on the default writes each page of the copy to the log; where the log is not synced, files are copied eight
# times as fast. 14 knows no other way and has no name for it.
_NAMED_FROM = 150000


@contextmanager
def cloned(template: Template) -> Iterator[Database]:
    """Yield a copy of the template, dropped afterwards with whoever is still connected."""
    name = f"outbox_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(databases.plain(template.server_url), autocommit=True) as maker:
        names = {"name": sql.Identifier(name), "template": sql.Identifier(template.name)}
        clone = _CLONE if maker.info.server_version < _NAMED_FROM else f"{_CLONE} STRATEGY file_copy"
        maker.execute(sql.SQL(clone).format(**names))
    database = Database(databases.url_of(databases.plain(template.server_url), name))
    try:
        yield database
        for look in AT_END:
            look(database)
    finally:
        database.close()
        databases.drop(template.server_url, name)
