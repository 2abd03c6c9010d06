"""Jobs in each state, for tests of how long they are kept, and the rules by which they go."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

from outbox import cancel
from outbox.database.link import Link
from outbox.leases.ending import complete, fail
from outbox.retention.erasing import Rule, rules_of
from outbox.settings.retention import RetentionSettings
from support.database import Database
from support.jobs import BROKEN, running, submit


def rules(**times: Any) -> list[Rule]:
    """Return the rules that settings make."""
    return rules_of(RetentionSettings.model_validate(times))


def made(database: Database, link: Link) -> dict[str, UUID]:
    """Return one job in each state."""
    claimed = running(database, link, 4)
    succeeded, failed, cancelled, busy = (item.lease.job_id for item in claimed)
    complete(link, [claimed[0].lease])
    fail(link, [(claimed[1].lease, BROKEN)])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        cancel(connection, cancelled, by="test", reason="test")
    [ready] = submit(database)
    return {"succeeded": succeeded, "failed": failed, "cancelled": cancelled, "running": busy, "ready": ready}
