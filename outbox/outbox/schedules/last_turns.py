"""The turn that a schedule still has by its plan before that ends: what has come by then and no relay has seen to yet
is made or passed over by the schedule's policy, in the transaction that pauses, disables or changes it.

Without it such an occurrence would vanish: what comes next begins at the moment of the change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from outbox.database.statements import Statements
from outbox.schedules.advancing import make_all, note, terms_of
from outbox.schedules.planning import Planned, plan_last
from outbox.schedules.turns import Turn, told
from outbox.submitting.coalescing_terms import check_level
from outbox_schemas import OutboxError

__all__ = ["MOST_AT_LAST", "last_turn", "turn_told"]

MOST_AT_LAST = 1000
"""So many jobs are made at most in a last turn, the last ones; what else is due is passed over, and counted."""

# Errors of a statement that come from what the row holds: data that can't be, a constraint, a trigger's own. All others
# (somebody's lock, another transaction, a missing right) are the caller's, whose transaction fails with them.
_OF_THE_ROW = frozenset({"22", "23", "P0"})


def last_turn(connection: sa.Connection, statements: Statements, row: Any) -> Turn:
    """Give a schedule that this transaction holds the turn that is due by its plan; the caller ends that plan.

    Nothing is due of one that is paused or disabled: it was not to come. One that can't have its turn, because it is
    broken, makes nothing: `error` says why, and what is due of it counts as passed over, as far as its rule says.

    Raises:
        NameRefused: something is due that supersedes others, and the isolation level is above READ COMMITTED.
        sqlalchemy.exc.DBAPIError: a lock was not to be had in time, the transaction can't be serialised, or a right to
            submit jobs is missing. The transaction has failed, and nothing is lost.
    """
    if row.paused or row.disabled_at is not None:
        return Turn(row.name)
    try:
        terms = terms_of(row)
        planned = plan_last(terms, row.after_at or row.now, row.now, MOST_AT_LAST)
    except OutboxError as error:
        return Turn(row.name, error=told(error))
    if not planned.make and not planned.missed:
        return Turn(row.name)
    if planned.make and row.supersedes:
        check_level("supersedes", row.isolation)
    return _given(_Runner(connection, statements), row, planned, by_zone=terms.rule.by_zone)


def turn_told(turn: Turn | None) -> dict[str, Any]:
    """Return what the audit keeps of a last turn; nothing of one in which nothing was due."""
    if turn is None:
        return {}
    facts = {"made": turn.made, "passed_over": turn.passed_over, "error": turn.error}
    found = {name: value for name, value in facts.items() if value}
    return {"last_turn": found} if found else {}


class _Runner:
    """Runs statements in the caller's transaction."""

    def __init__(self, connection: sa.Connection, statements: Statements) -> None:
        self.connection = connection
        self._statements = statements

    def __call__(self, statement: str, /, **parameters: Any) -> list[Any]:
        return self._statements.run_within(self.connection, statement, parameters)


def _given(run: _Runner, row: Any, planned: Planned, *, by_zone: bool) -> Turn:
    error = _failure(run, row, planned)
    if error is not None:
        planned = replace(planned, make=[], missed=planned.missed + len(planned.make))
    note(run, row, planned, by_zone=by_zone, error=error)
    return Turn(row.name, len(planned.make), planned.missed, error)


def _failure(run: _Runner, row: Any, planned: Planned) -> str | None:
    """Make the jobs; return why they can't be made, if that lies in the schedule. None of them is left then."""
    try:
        with run.connection.begin_nested():
            make_all(run, row, planned)
    except OutboxError as error:
        return told(error)
    except sa.exc.DBAPIError as error:
        code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or ""
        if code[:2] not in _OF_THE_ROW:
            raise
        return told(error)
    return None
