"""Reads what the schema looks like now, from PostgreSQL's catalog alone: no right on any table is needed."""

from sqlalchemy import Connection, text

from outbox.migrations.revisions import HERE
from outbox.migrations.runner import at_home
from outbox.settings.identifiers import schema_identifier


def live_schema(connection: Connection, schema: str = "outbox") -> dict[str, str]:
    """Return the definition of every table, column, constraint, index, trigger and function in `schema`.

    The same revision gives the same description on every supported PostgreSQL, in any session and under every
    schema name, but for function bodies, which hold the name.
    """
    query = text((HERE / "catalog.sql").read_text(encoding="utf-8"))
    with at_home(connection, schema_identifier(schema)):
        rows = connection.execute(query, {"schema": schema}).all()
    return {f"{kind} {name}": definition for kind, name, definition in rows}
