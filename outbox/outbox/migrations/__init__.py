"""Creating, upgrading and comparing the product's tables.

`upgrade_database` is a whole run of its own (the command `outbox db upgrade`); `upgrade` is the one call for
a host's own Alembic migration; `include_name` keeps that host's autogenerate from seeing our tables.
"""

from outbox.migrations.catalog import live_schema
from outbox.migrations.checking import SchemaCheck, check_schema
from outbox.migrations.description import Difference, compare, expected_schema
from outbox.migrations.errors import MigrationBusy, MigrationError, SchemaTooNew
from outbox.migrations.hooks import include_name
from outbox.migrations.offline import sql_script
from outbox.migrations.revisions import VERSION_TABLE, Upgrade, head
from outbox.migrations.runner import current_revision
from outbox.migrations.upgrading import upgrade, upgrade_database

__all__ = [
    "VERSION_TABLE",
    "Difference",
    "MigrationBusy",
    "MigrationError",
    "SchemaCheck",
    "SchemaTooNew",
    "Upgrade",
    "check_schema",
    "compare",
    "current_revision",
    "expected_schema",
    "head",
    "include_name",
    "live_schema",
    "sql_script",
    "upgrade",
    "upgrade_database",
]
