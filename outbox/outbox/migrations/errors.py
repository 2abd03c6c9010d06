"""What can go wrong while the tables are created, upgraded or compared."""

from outbox.errors import OutboxError, SchemaMismatch


class MigrationError(OutboxError):
    """The schema could not be upgraded or read; no revision is there by half."""

    code = "migration"


class MigrationBusy(MigrationError):  # noqa: N818 - named by what happened
    """The locks were not to be had in time; running the same upgrade again is safe."""

    code = "migration_busy"


class SchemaTooNew(SchemaMismatch):
    """The database was upgraded by a newer release than this one."""

    code = "schema_too_new"
