"""Erasing payloads, and purging jobs with their history, once their time is over. The table is walked from the oldest
id on, stretch by stretch; each stretch is a transaction of its own, and any number of processes may walk at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from outbox.database.link import Link
from outbox.processes.barriers import Barrier, hit
from outbox.settings.retention import KindRetention, RetentionSettings
from outbox_schemas import ENDED, JobState

__all__ = ["BEGINNING", "Author", "Rule", "Stretch", "preview", "purge", "purge_next", "rules_of"]

BEGINNING = UUID(int=0)
EVERY_KIND = "*"
# For who purges by hand: the link may be one that sets no limits for its session.
STATEMENT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Rule:
    """How long the ended jobs of a kind (`*`: of every other) and a state are kept, in seconds; None: for ever."""

    kind: str
    state: JobState
    keep_s: float | None
    payload_keep_s: float | None


class Author(NamedTuple):
    """Who has asked for a purge by hand, and why. The relay's own follows the settings and is not audited."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one stretch has come to. `place` is where the next one begins; None: this was the last."""

    looked_at: int
    succeeded: int
    failed: int
    cancelled: int
    erased: int
    place: UUID | None

    @property
    def purged(self) -> int:
        """All jobs that have gone."""
        return self.succeeded + self.failed + self.cancelled


def rules_of(settings: RetentionSettings) -> list[Rule]:
    """Return the rules that the settings make; none where everything is kept."""
    rules = [rule for kind, own in settings.kinds.items() for rule in _rules(kind, own, settings)]
    rules += _rules(EVERY_KIND, settings, settings)
    return rules if any(rule.keep_s or rule.payload_keep_s for rule in rules) else []


def purge(
    link: Link, rules: Iterable[Rule], place: UUID = BEGINNING, *, batch: int, author: Author | None = None
) -> Stretch:
    """Purge and erase what is due among the `batch` oldest jobs behind `place`, in a transaction of its own."""
    with link.transaction(outermost=True):
        link.run("limit_statements", milliseconds=STATEMENT_MS)
        stretch = _purge(link, list(rules), place, batch)
        if author is not None and (stretch.purged or stretch.erased):
            detail = {"after": str(place), "succeeded": stretch.succeeded, "failed": stretch.failed}
            detail |= {"cancelled": stretch.cancelled, "payloads_erased": stretch.erased}
            act = {"action": "jobs.purge", "subject": "jobs", "actor": author.actor, "reason": author.reason}
            link.run("write_audit", **act, detail=json.dumps(detail))
        hit(Barrier.PURGE_BEFORE_COMMIT)
    hit(Barrier.PURGE_AFTER_COMMIT)
    return stretch


def purge_next(link: Link, rules: Iterable[Rule], *, batch: int, pause_s: float) -> Stretch | None:
    """Go on with the walk that all relays share, by one stretch; None if another has it, or it is not its time."""
    with link.transaction(outermost=True):
        held = link.run("hold_walk", pause_s=pause_s)
        if not held:
            return None
        stretch = _purge(link, list(rules), held[0].place, batch)
        link.run("keep_walk", place=stretch.place)
        hit(Barrier.PURGE_BEFORE_COMMIT)
    hit(Barrier.PURGE_AFTER_COMMIT)
    return stretch


def preview(link: Link, rules: Iterable[Rule], place: UUID = BEGINNING, *, batch: int) -> Stretch:
    """Count what `purge` would do with this stretch, in a transaction of its own: no snapshot is kept meanwhile."""
    listed = list(rules)
    keeps = {"payload_keeps_s": [rule.payload_keep_s for rule in listed]}
    with link.transaction(outermost=True):
        link.run("limit_statements", milliseconds=STATEMENT_MS)
        [row] = link.run(
            "preview_purge",
            place=place,
            newest_s=_newest_s(listed),
            batch=batch,
            **_columns(listed, payloads=False),
            **keeps,
        )
    return _stretch(row, row.erased, batch)


def _purge(link: Link, rules: list[Rule], place: UUID, batch: int) -> Stretch:
    columns = _columns(rules, payloads=False)
    [row] = link.run("purge", place=place, newest_s=_newest_s(rules), batch=batch, **columns)
    erased = 0
    if row.last_id is not None and any(rule.payload_keep_s is not None for rule in rules):
        columns = _columns(rules, payloads=True)
        erased = link.run("erase_payloads", place=place, last_id=row.last_id, **columns)[0].erased
    return _stretch(row, erased, batch)


def _stretch(row: Any, erased: int, batch: int) -> Stretch:
    place = row.last_id if row.looked_at == batch else None
    return Stretch(row.looked_at, row.succeeded, row.failed, row.cancelled, erased, place)


def _columns(rules: list[Rule], *, payloads: bool) -> dict[str, Any]:
    return {
        "kinds": [rule.kind for rule in rules],
        "states": [rule.state.value for rule in rules],
        "keeps_s": [rule.payload_keep_s if payloads else rule.keep_s for rule in rules],
    }


def _newest_s(rules: list[Rule]) -> float:
    """Return the shortest time that anything is kept: a job submitted since then can't be due."""
    return min(keep for rule in rules for keep in (rule.keep_s, rule.payload_keep_s) if keep is not None)


def _rules(kind: str, own: KindRetention, general: RetentionSettings) -> list[Rule]:
    return [
        Rule(kind, state, _keep_s(state.value, own, general), _keep_s(f"{state.value}_payload", own, general))
        for state in sorted(ENDED)
    ]


def _keep_s(field: str, own: KindRetention, general: RetentionSettings) -> float | None:
    keep = getattr(own if field in own.model_fields_set else general, field)
    return None if keep is None else keep.total_seconds()
