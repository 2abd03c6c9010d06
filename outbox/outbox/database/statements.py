"""Every SQL statement of the product, loaded from its own file and bound to one installation's schema.

Files write parameters as `:name`, the quoted schema as `{schema}`, and a decision that several of them share as the
name of its part in `sql_parts`, for example `{may_go}`, so that it stands once. One text serves both ways of running
it: psycopg, in our own processes, and SQLAlchemy, inside a transaction that belongs to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
import sqlalchemy as sa
from psycopg.rows import namedtuple_row

from outbox.database.closing import close_error
from outbox.database.speaking import speaking_plainly
from outbox.settings.identifiers import schema_identifier

__all__ = ["Statements", "statements_for"]

# No such schema, table, function or column.
_TABLES_CODES = frozenset({"3F000", "42P01", "42883", "42703"})
_PARAMETER = re.compile(r"(?<![:\w]):(?=[a-z])(\w+)")
_PART = re.compile(r"\{(?!schema\})([a-z_]+)\}")


@cache
def _template(name: str) -> str:
    """Return a file's statement with its parts and without comment lines: these would travel with every execution."""
    return _with_parts("sql", name)


def _with_parts(folder: str, name: str) -> str:
    text = files("outbox").joinpath(folder, f"{name}.sql").read_text(encoding="utf-8")
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return _PART.sub(lambda part: _with_parts("sql_parts", part[1]), body)


class Statements:
    """The statements of one schema. Cheap to keep, safe to share between threads.

    Raises `SettingsError` if `schema` can't name a PostgreSQL schema.
    """

    def __init__(self, schema: str = "outbox") -> None:
        self.schema = schema
        self._quoted = schema_identifier(schema)
        self._psycopg: dict[str, LiteralString] = {}
        self._text: dict[str, sa.TextClause] = {}

    def for_psycopg(self, name: str) -> LiteralString:
        """Return statement `name` with psycopg's placeholders."""
        found = self._psycopg.get(name)
        if found is None:
            body = _PARAMETER.sub(r"%(\1)s", _template(name).replace("%", "%%"))
            # The only text that enters is our own file and a quoted, checked identifier.
            found = body.replace("{schema}", self._quoted.replace("%", "%%"))
            self._psycopg[name] = found
        return found

    def for_sqlalchemy(self, name: str) -> sa.TextClause:
        """Return statement `name` as a SQLAlchemy text clause, for any PostgreSQL driver."""
        found = self._text.get(name)
        if found is None:
            quoted = self._quoted.replace(":", "\\:")
            found = sa.text(_template(name).replace("{schema}", quoted))
            self._text[name] = found
        return found

    def run(self, connection: psycopg.Connection[Any], name: str, /, **parameters: Any) -> list[Any]:
        """Execute on psycopg and return the rows as named tuples. Autocommit or not is the connection's affair.

        Rows travel in binary: an instant's text depends on the server's DateStyle, and only one of them can be read.
        """
        with connection.cursor(row_factory=namedtuple_row, binary=True) as cursor:
            cursor.execute(self.for_psycopg(name), parameters)
            return cursor.fetchall() if cursor.description else []

    def run_within(self, connection: sa.Connection, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        """Execute inside a transaction of the user's and return the rows, in whatever way its session writes.
        No error shows a parameter.
        """
        try:
            with speaking_plainly(connection, self.for_sqlalchemy("speak")):
                result = connection.execute(self.for_sqlalchemy(name), dict(parameters))
                return list(result.all()) if result.returns_rows else []
        except sa.exc.StatementError as error:
            self._close(error)
            raise

    def value_within(self, connection: sa.Connection, name: str, parameters: dict[str, Any]) -> Any:
        """Execute inside a transaction of the user's and return the one value of the one row.

        Where the driver's placeholders are psycopg's, the text goes to it as it is, which spares SQLAlchemy's compiler.
        No error shows a parameter.
        """
        try:
            with speaking_plainly(connection, self.for_sqlalchemy("speak")):
                if connection.dialect.paramstyle == "pyformat":
                    return connection.exec_driver_sql(self.for_psycopg(name), parameters).scalar()
                return connection.execute(self.for_sqlalchemy(name), parameters).scalar()
        except sa.exc.StatementError as error:
            self._close(error)
            raise

    def _close(self, error: sa.exc.StatementError) -> None:
        """Keep parameters out of an error's text; one that comes from missing or older tables gets a note for it."""
        if (getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)) in _TABLES_CODES:
            error.add_note(f"{self._quoted} is missing or older than this release; run `outbox db upgrade` first")
        close_error(error)


@cache
def statements_for(schema: str) -> Statements:
    """Return the shared statements of one schema."""
    return Statements(schema)
