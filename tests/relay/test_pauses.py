"""Pauses with a real relay, a real broker and a real consumer: effective within two seconds, and over at a resume."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from outbox import pause, resume
from outbox.settings import Settings
from outbox_relay.counters import Counters
from outbox_relay.pauses import pause_step
from support.database import Database

WHO = {"by": "ada", "reason": "the bank is closed"}
SCOPES = [("everything", ""), ("queue", "q"), ("kind", "test.noop"), ("tenant", "default")]


def phases(database: Database) -> dict[str, int]:
    """Return how many rows are in each phase."""
    return dict(database.rows("SELECT phase, count(*)::int FROM {s}.outbox GROUP BY 1"))


@pytest.mark.parametrize(("scope", "name"), SCOPES)
def test_a_relay_takes_back_what_slips_through_within_two_seconds(
    database: Database, settings: Settings, start: Any, submit: Callable[..., list[str]], eventually: Any,
    broker: Any, scope: str, name: str,
) -> None:  # fmt: skip
    """What an older relay releases in a pause is owed again soon; a resume sends everything, once a hint at least."""
    start(settings)
    first = submit(3)
    eventually(lambda: phases(database) == {"released": 3})
    with database.engine().begin() as connection:
        assert pause(connection, scope, name, **WHO).taken_back == 3
    second = submit(2)
    database.rows("UPDATE {s}.outbox SET phase = 'released', released_at = {s}.clock(), release_count = 1")
    slipped_at = time.monotonic()
    eventually(lambda: phases(database) == {"owed": 5}, within_s=2)
    assert time.monotonic() - slipped_at < 2
    broker.take()
    with database.engine().begin() as connection:
        resume(connection, scope, name, **WHO)
    eventually(lambda: phases(database) == {"released": 5}, within_s=10)
    hinted: set[str] = set()
    eventually(lambda: hinted.update(broker.hints()) or hinted == {*first, *second})
    eventually(lambda: database.count("pauses") == 0)


def test_a_turn_that_its_time_has_ended_is_followed_at_once(
    database: Database, submit: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step tells the keeper that there is more to do, and no more than there is."""
    monkeypatch.setattr("outbox.keeping.pauses._TURN_S", 0.0)
    submit(2)
    link, owed = database.link(), threading.Event()
    step = pause_step(Counters(), owed.set)
    assert not step(link)
    with database.engine().begin() as connection:
        pause(connection, "queue", "q", **WHO)
    assert step(link)


def test_a_paused_tenant_keeps_nobody_waiting(
    database: Database, settings: Settings, start: Any, submit: Callable[..., list[str]], eventually: Any
) -> None:
    """Behind thousands of jobs of a paused tenant, another's go out as ever."""
    with database.engine().begin() as connection:
        pause(connection, "tenant", "big", **WHO)
    submit(3000, tenant="big")
    start(settings)
    submit(5, tenant="small")
    eventually(lambda: phases(database) == {"owed": 3000, "released": 5}, within_s=5)
    eventually(lambda: database.count("outbox WHERE last_error = 'paused'") == 3000)
