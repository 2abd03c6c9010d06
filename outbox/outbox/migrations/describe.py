"""Makes the packaged description anew after a migration: `python -m outbox.migrations.describe [URL]`.

It needs a PostgreSQL with the right to create a schema; without a URL the usual search for a server is made.
The schema that it makes, under a name of its own, is dropped again.
"""

import json
import sys
import uuid
from contextlib import nullcontext

from sqlalchemy import Connection

from outbox.migrations.catalog import live_schema
from outbox.migrations.description import EXPECTED
from outbox.migrations.revisions import head
from outbox.migrations.upgrading import upgrade
from outbox.servers import postgres
from outbox.settings.urls import sqlalchemy_engine


def describe(connection: Connection) -> dict[str, str]:
    """Return what a fresh installation looks like, with placeholders for its name. The caller rolls back."""
    name = f"outbox_{uuid.uuid4().hex}"
    upgrade(connection, name)
    named = live_schema(connection, name)
    plain = {
        subject: definition.replace(f'"{name}"', "{schema}").replace(f"'{name}'", "{schema_literal}")
        for subject, definition in sorted(named.items())
    }
    left = [subject for subject, definition in plain.items() if name in subject + definition]
    if left:
        raise RuntimeError(f"these definitions hold the schema's name unquoted: {', '.join(left)}")
    return plain


def main() -> None:
    """Write `expected.json`."""
    given = sys.argv[1] if len(sys.argv) > 1 else None
    with nullcontext(None) if given else postgres() as server:
        url = given if server is None else server.url
        engine = sqlalchemy_engine(url)
        try:
            with engine.connect() as connection:
                objects = describe(connection)
        finally:
            engine.dispose()
    text = json.dumps({"revision": head(), "objects": objects}, indent=1, ensure_ascii=False)
    EXPECTED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
