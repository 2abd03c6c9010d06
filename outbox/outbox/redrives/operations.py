"""Redrives under way: look at them, and pause, resume or abort one."""

from __future__ import annotations

from uuid import UUID

from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.database.targets import Target, schema_of, writable
from outbox.redrives.views import RedriveItem, RedriveOperation
from outbox.texts.actors import check_actor
from outbox_schemas import NameRefused, RedriveRefused
from outbox_schemas.names import check_id, nature_of

__all__ = ["ACTIONS", "list_items", "list_redrives", "read_redrive", "steer_redrive"]

ACTIONS = ("pause", "resume", "abort")


def list_redrives(link: Link, *, limit: int = 20) -> list[RedriveOperation]:
    """Return the newest redrives."""
    return [RedriveOperation(*row) for row in link.run("list_redrives", operation_id=None, batch=limit)]


def read_redrive(link: Link, operation_id: UUID) -> RedriveOperation:
    """Return one redrive. Raises `RedriveRefused` where there is none of this id."""
    rows = link.run("list_redrives", operation_id=operation_id, batch=1)
    if not rows:
        raise RedriveRefused(f"no redrive has the id {operation_id}")
    return RedriveOperation(*rows[0])


def list_items(link: Link, operation_id: UUID, *, limit: int = 50) -> list[RedriveItem]:
    """Return jobs of a redrive: first those that were refused, then those that failed again."""
    rows = link.run("list_redrive_items", operation_id=operation_id, batch=limit)
    return [RedriveItem(*row) for row in rows]


def steer_redrive(
    target: Target, operation_id: UUID, action: str, *, by: str, reason: str, schema: str | None = None
) -> None:
    """Pause, resume or abort a redrive in the caller's transaction, audited with who and why.

    Paused and aborted, it puts no more jobs back; those that it has put back stay so, and go on. A turn that is
    under way is waited for. Pausing what is paused already, and the like, changes nothing and is refused.

    Raises:
        NameRefused: `operation_id` is not a UUID, or `by`, `reason` or `action` is out of bounds.
        RedriveRefused: there is no such redrive, or it is not in a state for this.
    """
    check_id("operation_id", operation_id)
    check_actor(by, reason)
    if action not in ACTIONS:
        raise NameRefused("action", f"must be one of {', '.join(ACTIONS)}, not {nature_of(action)}")
    parameters = {"operation_id": operation_id, "action": action, "actor": by, "reason": reason}
    statements = statements_for(schema_of(target, schema))
    rows = statements.run_within(writable(target), "steer_redrive", parameters)
    if not rows:
        raise RedriveRefused(f"no redrive has the id {operation_id}")
    if not rows[0].steered:
        wanted = {"pause": "running", "resume": "paused", "abort": "running or paused"}[action]
        raise RedriveRefused(
            f"redrive {operation_id} is {rows[0].before}; only one that is {wanted} can be {_PAST[action]}"
        )


_PAST = {"pause": "paused", "resume": "resumed", "abort": "aborted"}
