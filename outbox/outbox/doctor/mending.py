"""Mends what is safe to mend. Each case is looked at again under its locks, and audited in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import sqlalchemy as sa

from outbox.database.statements import statements_for
from outbox.doctor.examining import Examination
from outbox.doctor.report import Limits, Report
from outbox.migrations.revisions import pending
from outbox.migrations.runner import current_revision
from outbox.settings.identifiers import default_schema
from outbox.texts.actors import check_actor

__all__ = ["Mended", "mend"]

_CHUNK = 500
_STATEMENT_S = 30


@dataclass(frozen=True, slots=True)
class Mended:
    """How many cases of one kind were found, and which jobs of these were mended, or schedules (`names`): the others
    had changed, were locked, or were mended with another kind already.
    """

    code: str
    found: int
    job_ids: list[UUID] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many were mended."""
        return len(self.job_ids) + len(self.names)


def mend(
    engine: sa.Engine, *, by: str, reason: str, schema: str | None = None, limits: Limits | None = None
) -> tuple[Report, list[Mended]]:
    """Look for the kinds that can be mended, mend them, and return both. Each step commits by itself.

    Nothing that is sound is touched: the statement that mends looks at each row again once it holds its locks, and
    leaves alone what somebody else holds. Call it again for what is left.

    Args:
        engine: the database, as a role that may also insert into and delete from `outbox`.
        by: who; recorded in the audit, with
        reason: why.
        schema: as in `examine`.
        limits: as in `examine`.

    Raises:
        NameRefused: `by` or `reason` is empty, unprintable or too long.
        SchemaTooNew: a newer release has upgraded the tables, in which what looks wrong here may be right.
    """
    check_actor(by, reason)
    name = schema or default_schema()
    with engine.connect() as connection:
        pending(current_revision(connection, name))
    report = Examination(engine, name, limits or Limits(), lambda check: check.mend is not None).run()
    statements = statements_for(name)
    done: list[Mended] = []
    for disorder in report.disorders:
        code, statement, named = disorder.check.code, disorder.check.mend, disorder.check.named
        cases = sorted({case.subject for case in disorder.cases})
        mended = Mended(code, disorder.count)
        for start in range(0, len(cases), _CHUNK):
            part = cases[start : start + _CHUNK]
            whose = {"names": part} if named else {"job_ids": [UUID(case) for case in part]}
            with engine.begin() as connection:
                statements.run_within(connection, "limit_statements", {"milliseconds": _STATEMENT_S * 1000})
                rows = statements.run_within(
                    connection, str(statement), whose | {"code": code, "actor": by, "reason": reason}
                )
            if named:
                mended.names.extend(row.name for row in rows)
            else:
                mended.job_ids.extend(row.job_id for row in rows)
        done.append(mended)
    return report, done
