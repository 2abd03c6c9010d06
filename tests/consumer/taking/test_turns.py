"""How much one group claims by one statement, and when less than it has room for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from outbox.database.ids import new_id
from outbox_consumer.basis.counters import Counters
from outbox_consumer.holding.hints import Hint
from outbox_consumer.taking.groups import Group
from outbox_consumer.taking.turns import _SHARED_BATCH, _SHARED_S, GroupTurn

from .test_intake import fast_group


class Asked:
    """Notes how many jobs each claim names, and whether they go ahead; gives all of them."""

    def __init__(self) -> None:
        self.claims: list[tuple[int, bool]] = []

    def take(
        self,
        _group: Group,
        ids: Sequence[UUID],
        *,
        ahead: bool = False,
        hints: Sequence[Hint] = (),  # noqa: ARG002
    ) -> tuple[int, int]:
        """Claim."""
        self.claims.append((len(ids), ahead))
        return len(ids), 0


def hint(number: int, jobs: int, *, ahead: bool = False) -> Hint:
    """Return a message with so many jobs."""
    return Hint(1, number, deque(new_id() for _ in range(jobs)), ahead=ahead)


def test_while_hints_go_ahead_of_others_claims_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next of them must not wait for a long claim: from the first one on, until none has come for a second."""
    now = 1000.0
    monkeypatch.setattr("outbox_consumer.taking.turns.time", SimpleNamespace(monotonic=lambda: now))
    group, asked = fast_group(0), Asked()
    others: Any = None
    taker: Any = asked
    turn = GroupTurn(group, taker=taker, gleaner=others, counters=Counters(), batch=1000, away=lambda: False)
    group.inbox.put(hint(1, 1000))
    turn.take()
    group.inbox.put(hint(2, 1000))
    group.inbox.put(hint(3, _SHARED_BATCH + 1, ahead=True))
    for _ in range(3):
        turn.take()
    now += _SHARED_S - 0.01
    turn.take()
    now += 0.02
    turn.take()
    short = _SHARED_BATCH
    assert asked.claims == [
        (1000, False), (short, True), (1, True), (short, False), (short, False), (1000 - 2 * short, False)
    ]  # fmt: skip
