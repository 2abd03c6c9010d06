"""Whether a database is what this release expects, and what to do if it is not."""

from dataclasses import dataclass

from sqlalchemy import Connection

from outbox.migrations.catalog import live_schema
from outbox.migrations.description import Difference, compare, expected_schema
from outbox.migrations.errors import SchemaTooNew
from outbox.migrations.revisions import head, pending
from outbox.migrations.runner import current_revision

SHARED_SCHEMA = "public"
"""A schema of this name is taken as shared with others: tables in it that aren't ours are nobody's fault."""


@dataclass(frozen=True)
class SchemaCheck:
    """The outcome of `check_schema`.

    Attributes:
        revision: where the schema is, None where nothing is installed.
        expected: the newest revision that this release knows.
        pending: revisions still to be applied, oldest first.
        too_new: a newer release has upgraded the schema.
        differences: only looked for when the revision is the expected one.
    """

    schema: str
    revision: str | None
    expected: str
    pending: tuple[str, ...] = ()
    too_new: bool = False
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        """True when the schema is exactly as expected."""
        return not (self.pending or self.too_new or self.differences)

    def lines(self) -> list[str]:
        """Return the outcome in words, one fact to a line."""
        if self.too_new:
            return [
                f"newer: the schema is at revision {self.revision}, this release knows only up to "
                f"{self.expected}; update this release"
            ]
        if self.pending:
            state = "not installed" if self.revision is None else f"at revision {self.revision}"
            return [f"pending: {item} (the schema is {state}; run 'outbox db upgrade')" for item in self.pending]
        return [str(item) for item in self.differences] or [f"as expected at revision {self.revision}"]


def check_schema(connection: Connection, schema: str = "outbox", *, shared: bool | None = None) -> SchemaCheck:
    """Compare the live schema with the expected one, by the catalog and the version table; changes nothing.

    `shared` says whether other people's tables may stand in the same schema; None means: in `public` they
    may.

    Raises:
        MigrationError: the version table may not be read, or holds several rows.
    """
    revision = current_revision(connection, schema)
    try:
        missing = tuple(script.revision for script in pending(revision))
    except SchemaTooNew:
        return SchemaCheck(schema, revision, head(), too_new=True)
    if missing:
        return SchemaCheck(schema, revision, head(), pending=missing)
    is_shared = schema == SHARED_SCHEMA if shared is None else shared
    found = compare(expected_schema(schema), live_schema(connection, schema), shared=is_shared)
    return SchemaCheck(schema, revision, head(), differences=tuple(found))
