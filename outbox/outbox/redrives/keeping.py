"""What relays owe redrives besides: a turn that fails keeps no other one waiting, and what is long over is deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outbox.database.link import Link, is_connection_trouble
from outbox.redrives.pace import MOST_FAILED_TURNS, postponed_s
from outbox.redrives.turns import Turn, advance

__all__ = ["KEPT_S", "purge_redrives", "take_turn"]

KEPT_S = 90 * 86_400.0
"""A redrive that is over is kept for so long, with its items; the audit keeps who and why for ever."""


def take_turn(link: Link, before_commit: Callable[[], None] = lambda: None) -> Turn | None:
    """Give the redrive whose turn it is one turn, in a transaction of its own; None: none is due.

    If the turn fails, the error is raised, but the redrive waits from then on, longer each time, so that it keeps no
    other one from its turn. After ten failures in a row it is paused, with a reason.
    """
    operation = None
    try:
        with link.transaction():
            rows = link.run("next_redrive")
            if not rows:
                return None
            operation = rows[0]
            turn = advance(link, operation)
            before_commit()
            return turn
    except Exception as error:
        # Where the connection was lost it is not for the redrive to wait.
        if operation is not None and not is_connection_trouble(error):
            _postpone(link, operation, error)
        raise


def _postpone(link: Link, operation: Any, error: Exception) -> None:
    failed = operation.failed_turns + 1
    over = failed >= MOST_FAILED_TURNS
    code = getattr(error, "sqlstate", None)
    kind = f"{type(error).__name__} ({code})" if code else type(error).__name__
    reason = f"{failed} turns in a row failed, the last one with {kind}; the relay's log says more"
    link.run(
        "postpone_redrive",
        operation_id=operation.id,
        failed_turns=operation.failed_turns,
        pause_s=postponed_s(operation.failed_turns),
        next_state="paused" if over else "running",
        stop_reason=reason if over else None,
    )


def purge_redrives(link: Link, keep_s: float = KEPT_S, *, batch: int = 1000) -> bool:
    """Delete a piece of the redrive that has been over for longest, if that is more than `keep_s` seconds. False: there
    is none.
    """
    return bool(link.run("purge_redrives", keep_s=keep_s, batch=batch))
