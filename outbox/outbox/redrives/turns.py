"""A relay's turn of a redrive: note what has ended, judge, put the next jobs back. One relay advances one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox.database.link import Link
from outbox.redrives.pace import (
    Grant,
    Lane,
    Progress,
    grants,
    pause_s,
    stop_reason,
)

__all__ = ["Turn", "advance", "advance_redrive"]

BATCH = 500
LANES = 200
# So many jobs of one redrive are under way at once; that bounds what a turn has to look at, too.
UNDER_WAY = 5000
# Where canaries are refused, so many times in a turn others take their place.
PROMOTIONS = 20


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn has done. `state`: the operation's, from now on."""

    operation_id: UUID
    redriven: int
    refused: int
    state: str


@dataclass(frozen=True, slots=True)
class _Ended:
    succeeded: int
    failed: int
    otherwise: int
    canaries: int
    canaries_done: int
    as_before: int

    @property
    def all(self) -> int:
        return self.succeeded + self.failed + self.otherwise


def advance_redrive(link: Link) -> Turn | None:
    """Give the redrive whose turn it is one turn, inside the caller's `link.transaction()`; None: none is due."""
    rows = link.run("next_redrive")
    if not rows:
        return None
    return advance(link, rows[0])


def advance(link: Link, operation: Any) -> Turn:
    """Give this redrive, whose row the caller's transaction holds, one turn."""
    ended = _settled(link, operation.id, _smaller(UNDER_WAY, operation))
    progress = Progress(
        operation.canary,
        max(operation.canary - operation.canaries_done - ended.canaries_done, 0),
        ended.as_before,
        operation.succeeded + ended.succeeded,
        operation.failed + ended.failed,
    )
    stop = stop_reason(
        progress,
        same_code=operation.stop_on_same_code,
        failure_ratio=operation.failure_ratio,
        at_least=operation.ratio_at_least,
    )
    moved, free_at = ([], []) if stop else _put_back(link, operation, progress, ended)
    refused = sum(row.refusal is not None for row in moved)
    turn = Turn(operation.id, len(moved) - refused, refused, _state(operation, ended, len(moved), stop))
    idle = 0 if moved or ended.all else min(operation.idle_turns + 1, 100)
    _close(link, turn, ended, stop, idle_turns=idle, rest_s=pause_s(free_at, operation.now, idle))
    return turn


def _smaller(batch: int, operation: Any) -> int:
    """Return less and less after turns that failed: what takes too long at once gets done then."""
    failed_turns: int = operation.failed_turns
    return max(batch >> failed_turns, 1)


def _settled(link: Link, operation_id: UUID, batch: int) -> _Ended:
    (row,) = link.run("settle_redrive", operation_id=operation_id, batch=batch)
    return _Ended(*row)


def _put_back(link: Link, operation: Any, progress: Progress, ended: _Ended) -> tuple[list[Any], list[datetime]]:
    """Return the items that were put back or refused, and when lanes are free next."""
    settled = operation.succeeded + operation.failed + operation.otherwise + ended.all
    room = min(_smaller(BATCH, operation), UNDER_WAY - (operation.redriven - settled))
    if not operation.total - operation.redriven - operation.refused or room <= 0:
        return [], []
    if progress.canaries_open:
        moved = _canaries(link, operation, progress.canaries_open - (operation.canaries_open - ended.canaries))
        _pace(link, operation.id, moved, [])
        return moved, []
    lanes = [Lane(*row) for row in link.run("redrive_lanes", operation_id=operation.id, batch=LANES)]
    granted = grants(lanes, operation.now, operation.rate_per_s, room)
    moved = _granted(link, operation.id, granted)
    _pace(link, operation.id, moved, granted)
    taken = {(grant.lane.kind, grant.lane.tenant) for grant in granted}
    others = [lane.free_at for lane in lanes if (lane.kind, lane.tenant) not in taken]
    return moved, [*others, *(grant.free_at for grant in granted)]


def _granted(link: Link, operation_id: UUID, granted: Sequence[Grant]) -> list[Any]:
    """Put back what the lanes may let go. A job that somebody holds keeps none behind it from its turn."""
    wanted = {(grant.lane.kind, grant.lane.tenant): grant.count for grant in granted}
    picked = link.run("pick_redrive", operation_id=operation_id, canaries=False, **_columns(wanted), batch=BATCH)
    moved = _redriven(link, operation_id, picked)
    if len(moved) < len(picked):
        gone = Counter((row.kind, row.tenant) for row in moved)
        left = {lane: count - gone[lane] for lane, count in wanted.items() if count > gone[lane]}
        others = link.run("pick_free", operation_id=operation_id, **_columns(left), batch=BATCH - len(moved))
        moved += _redriven(link, operation_id, others)
    return moved


def _columns(lanes: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    return {
        "kinds": [kind for kind, _ in lanes],
        "tenants": [tenant for _, tenant in lanes],
        "counts": list(lanes.values()),
    }


def _canaries(link: Link, operation: Any, missing: int) -> list[Any]:
    """Put the canaries back, and others in the place of those that can show nothing. Return what was put back or
    refused.
    """
    named = {"operation_id": operation.id}
    all_moved: list[Any] = []
    for _ in range(PROMOTIONS):
        if missing > 0:
            link.run("promote_canaries", **named, count=missing)
        batch = _smaller(1024, operation)
        picked = link.run("pick_redrive", **named, canaries=True, kinds=[], tenants=[], counts=[], batch=batch)
        moved = _redriven(link, operation.id, picked)
        all_moved += moved
        missing = sum(row.refusal is not None for row in moved)
        if not missing:
            break
    return all_moved


def _redriven(link: Link, operation_id: UUID, picked: Sequence[Any]) -> list[Any]:
    if not picked:
        return []
    return link.run("redrive", operation_id=operation_id, job_ids=[row.job_id for row in picked], patient=False)


def _pace(link: Link, operation_id: UUID, moved: Sequence[Any], granted: Sequence[Grant]) -> None:
    gone = Counter((row.kind, row.tenant) for row in moved)
    free = {(grant.lane.kind, grant.lane.tenant): grant.free_at for grant in granted}
    lanes = sorted({*gone, *free})
    if lanes:
        link.run(
            "pace_redrive",
            operation_id=operation_id,
            kinds=[kind for kind, _ in lanes],
            tenants=[tenant for _, tenant in lanes],
            gone=[gone[lane] for lane in lanes],
            free_at=[free.get(lane) for lane in lanes],
        )


def _state(operation: Any, ended: _Ended, moved: int, stop: str | None) -> str:
    """Return the operation's state after this turn."""
    waiting = operation.total - operation.redriven - operation.refused - moved
    settled = operation.succeeded + operation.failed + operation.otherwise + ended.all
    if stop and waiting:
        return "stopped"
    # What this turn has put back has not ended; where it has only refused some, the next one finds the end.
    return "done" if not waiting and not moved and settled == operation.redriven else "running"


def _close(link: Link, turn: Turn, ended: _Ended, stop: str | None, *, idle_turns: int, rest_s: float) -> None:
    link.run(
        "advance_redrive",
        operation_id=turn.operation_id,
        redriven=turn.redriven,
        refused=turn.refused,
        succeeded=ended.succeeded,
        failed=ended.failed,
        otherwise=ended.otherwise,
        canaries_done=ended.canaries_done,
        idle_turns=idle_turns,
        pause_s=rest_s,
        next_state=turn.state,
        stop_reason=stop if turn.state == "stopped" else None,
    )
