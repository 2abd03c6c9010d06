"""Indexes that an operator may build before a revision does. PostgreSQL takes whatever has the name for one of them,
be it another index or one whose build broke off; so it is looked at here.
"""

import re
from typing import Final

from sqlalchemy import Connection, text

from outbox.migrations.description import expected_schema
from outbox.migrations.errors import MigrationError
from outbox.migrations.revisions import HERE

_BEFOREHAND: Final = re.compile(r"\bCREATE (?:UNIQUE )?INDEX IF NOT EXISTS (\w+)")


def taken_as_they_are(sql: str) -> list[str]:
    """Return the names of the indexes that this DDL would not build where they are there already."""
    return _BEFOREHAND.findall(sql)


def refuse_unusable(connection: Connection, schema: str, names: list[str]) -> None:
    """Look at those of these indexes that are there. The search path is `schema` alone.

    Raises:
        MigrationError: one of them is invalid, or another index than the one that is needed.
    """
    query = text((HERE / "prebuilt.sql").read_text(encoding="utf-8"))
    expected = expected_schema(schema)
    for table, name, definition, is_usable in connection.execute(query, {"schema": schema, "names": names}):
        remedy = "DROP INDEX CONCURRENTLY it, and build it again (docs/schema.md) or let the upgrade do so"
        if not is_usable:
            raise MigrationError(
                f"the index {name} on {table} is INVALID: its build broke off, or is still under way. "
                f"If it is, wait for its end; else {remedy}"
            )
        wanted = expected.get(f"index {table}.{name}")
        if wanted is not None and definition != wanted:  # None: a later revision drops it, whatever it is
            raise MigrationError(f"there is an index {name} on {table}, but not the one needed: {definition}. {remedy}")
