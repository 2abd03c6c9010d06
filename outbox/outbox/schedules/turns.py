"""A relay's turn of a schedule: make the jobs of what is due and go on, in one transaction; or put it off, and mark it
as broken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox.database.link import Link, is_connection_trouble, is_transient
from outbox.database.trouble import Fault, fault_of, reason_of
from outbox.processes.backoff import ceiling
from outbox.schedules.advancing import make_all, note, terms_of
from outbox.schedules.planning import plan
from outbox.texts.masking import masked_line
from outbox_schemas import OutboxError

__all__ = ["Patience", "Turn", "take_turn", "told"]

# A broken schedule is looked at again after a minute, then after twice as long each time.
_AGAIN_S = 60.0
_AGAIN_MAX_S = 3600.0
# One that somebody else's transaction holds up, after a second, and so on; from so many such turns on, when that has
# lasted for about half a minute, it counts as broken, too, so that a person hears of it.
_HELD_S = 1.0
_HELD_MAX_S = 60.0
_HELD_TURNS = 6
_ERROR_CHARACTERS = 500
# For so long the turns of one look wait for what others hold; then each for no longer than a usual transaction takes.
_PATIENCE_S = 0.2
_IMPATIENCE_S = 0.01


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn has done. `error`: why the schedule is marked as broken; `held`: why its turn has to be tried again.
    None: it is not.
    """

    name: str
    made: int = 0
    passed_over: int = 0
    error: str | None = None
    held: str | None = None


@dataclass(slots=True)
class Patience:
    """How long the next turn of a look may wait for somebody's lock: where many schedules need the same one, only the
    first waits long, and whoever comes behind them has its turn in time.
    """

    left_s: float = _PATIENCE_S

    def wait_s(self) -> float:
        """Return the seconds that a statement of the next turn may wait."""
        return max(self.left_s, _IMPATIENCE_S)

    def spend(self, seconds: float) -> None:
        """Count what a turn took that was held up."""
        self.left_s -= seconds


def take_turn(
    link: Link, before_commit: Callable[[], None] = lambda: None, patience: Patience | None = None
) -> Turn | None:
    """Give the schedule whose turn it is one turn, in a transaction of its own; None: none is due.

    Any number of relays may call it at once. A schedule that can't have its turn is marked as broken, with the reason,
    and looked at again after a while that grows; so is one that needs what somebody's open transaction holds, though it
    is marked only if that lasts. It keeps no other one from its turn: those of one look share its `patience`. What is
    wrong with the server or the connection is raised, and breaks nothing.
    """
    row, patience, began = None, patience or Patience(), time.monotonic()
    try:
        with link.transaction():
            rows = link.run("next_schedule", wait_ms=math.ceil(patience.wait_s() * 1000))
            if not rows:
                return None
            row = rows[0]
            turn = _advance(link, row)
            before_commit()
            return turn
    except Exception as error:
        if row is None or is_connection_trouble(error):
            raise
        if is_transient(error):
            patience.spend(time.monotonic() - began)
            return _held_up(link, row, error)
        if fault_of(error) is not Fault.UNKNOWN:
            raise
        return _broken(link, row, told(error), ceiling(row.failed_turns + 1, _AGAIN_S, _AGAIN_MAX_S))


def _advance(link: Link, row: Any) -> Turn:
    terms = terms_of(row)
    planned = plan(terms, row.after_at or row.now, row.now)
    make_all(link.run, row, planned)
    note(link.run, row, planned, by_zone=terms.rule.by_zone)
    return Turn(row.name, len(planned.make), planned.missed)


def _held_up(link: Link, row: Any, error: Exception) -> Turn:
    reason = f"held up by another transaction: {told(error)}"
    pause_s = ceiling(row.failed_turns + 1, _HELD_S, _HELD_MAX_S)
    if row.failed_turns + 1 >= _HELD_TURNS:
        return _broken(link, row, reason, pause_s)
    _put_off(link, row, reason, pause_s, broken=False)
    return Turn(row.name, held=reason)


def _broken(link: Link, row: Any, reason: str, pause_s: float) -> Turn:
    _put_off(link, row, reason, pause_s, broken=True)
    return Turn(row.name, error=reason)


def _put_off(link: Link, row: Any, reason: str, pause_s: float, *, broken: bool) -> None:
    link.run("break_schedule", name=row.name, seen=row.seen, pause_s=pause_s, error=reason, broken=broken)


def told(error: Exception) -> str:
    """Return why a schedule can't have its turn, in one line, as its row keeps it."""
    return masked_line(str(error) if isinstance(error, OutboxError) else reason_of(error), _ERROR_CHARACTERS)
