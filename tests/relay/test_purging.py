"""The relay purges by its settings, a little at each sweep, and without settings not at all."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest

from outbox.leases.leasing import Ability, Worker, claim
from outbox.retention.erasing import Stretch, rules_of
from outbox.settings import load
from outbox.settings.retention import RetentionSettings
from outbox_relay import purging
from outbox_relay.counters import Counters
from outbox_relay.purging import LONGEST_TURN_S, LOOK_EVERY_S, longest_turn_s, purge_step
from outbox_schemas import JobState

_ENDED = """
INSERT INTO {s}.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, attempt_count,
  run_at, created_at, finished_at)
SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid), 'default', 'test.old', n::text, 1, 'q', '{}', '', 'cancelled', 0,
  now(), now(), now() - interval '40 days'
FROM generate_series(1, 300) AS n
"""


class Clock:
    """Moves only when told, and a little at each look."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        self.now += 0.011
        return self.now


def test_a_sweep_does_a_little_and_the_next_goes_on(database: Any) -> None:
    """All that is due goes over some sweeps; at the end of the walk nobody asks for a while."""
    database.rows(_ENDED)
    settings = RetentionSettings.model_validate({"cancelled": "30d", "batch": 20})
    counters, clock, link = Counters(), Clock(), database.link()
    step = purge_step(rules_of(settings), settings, 0.5, counters, clock)
    step(link)
    first = counters.snapshot()["purged"]
    assert 0 < first < 300
    while counters.snapshot()["purged"] < 300:
        step(link)
    step(link)
    database.rows(_ENDED)
    step(link)
    assert database.count("jobs") == 300
    database.rows("UPDATE {s}.walks SET ended_at = ended_at - interval '1 day'")
    clock.now += LOOK_EVERY_S
    step(link)
    assert database.count("jobs") < 300


def test_turns_grow_while_much_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the share of the time that the settings give; where little is due, and at the walk's end, they are short
    again.
    """
    clock, made = Clock(), []
    looked_at, due, place = 100, 100, UUID(int=7)

    def stretch(*_: Any, **__: Any) -> Stretch:
        made.append(1)
        return Stretch(looked_at, due, 0, 0, 0, place if len(made) < 400 else None)

    monkeypatch.setattr(purging, "purge_next", stretch)
    settings = RetentionSettings.model_validate({"succeeded": "30d", "share": 0.6})
    step = purge_step(rules_of(settings), settings, 1.0, Counters(), clock)

    def turn() -> float:
        began = clock.now
        step(None)  # type: ignore[arg-type]
        return clock.now - began

    turns = [turn() for _ in range(6)]
    assert turns == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.5, 1.5], abs=0.05)
    due = 10
    assert [turn(), turn()] == pytest.approx([1.5, 0.1], abs=0.05)
    due = 100
    while len(made) < 400:
        turn()
    clock.now += LOOK_EVERY_S
    made.clear()
    assert turn() == pytest.approx(0.1, abs=0.05)


def test_a_turn_is_no_longer_than_its_share_and_than_a_stop_may_wait() -> None:
    """Half of the time is as long as the pause; however long that is, a relay that is told to stop soon does."""
    assert longest_turn_s(0.5, 0.5) == pytest.approx(0.5)
    assert longest_turn_s(0.1, 0.9) == pytest.approx(0.1)
    assert longest_turn_s(0.5, 60) == LONGEST_TURN_S


def test_a_relay_purges_only_where_it_is_told(database: Any, prefix: str, start: Any, eventually: Any) -> None:
    """The process does it by its settings alone, beside its other work."""
    database.rows(_ENDED)
    general: dict[str, Any] = {"env": {}, "database_url": database.url, "amqp_prefix": prefix}
    start(load(**general))
    told = load(**general, retention={"cancelled": "30d", "failed": "never"})
    assert {rule.state for rule in rules_of(told.retention) if rule.keep_s} == {JobState.CANCELLED}
    assert database.count("jobs") == 300
    start(told)
    eventually(lambda: [thread.name for thread in threading.enumerate()].count("outbox-relay-purge") == 1)
    eventually(lambda: database.count("jobs") == 0, within_s=30)


_HELD_UP = """
CREATE TABLE public.go ();
CREATE FUNCTION public.wait_for_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WHILE NOT EXISTS (SELECT FROM public.go) LOOP PERFORM pg_sleep(0.02); END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER held_up AFTER DELETE ON {s}.jobs EXECUTE FUNCTION public.wait_for_go();
"""
_PURGING = """
SELECT pid, query_start FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'outbox-relay/%' AND wait_event = 'PgSleep'
"""


def test_a_purge_that_hangs_keeps_nothing_else_waiting(
    database: Any, prefix: str, amqp_url: str, start: Any, submit: Any, broker: Any, eventually: Any
) -> None:
    """While one of its statements goes on and on, hints go out and leases are taken back."""
    database.rows(_ENDED)
    database.rows(_HELD_UP)
    general: dict[str, Any] = {"env": {}, "database_url": database.url, "amqp_url": amqp_url, "amqp_prefix": prefix}
    start(load(**general, retention={"cancelled": "30d"}))
    held = eventually(lambda: database.rows(_PURGING))
    [job] = submit(1)
    assert eventually(broker.hints) == [job]
    link = database.link()
    assert claim(link, [UUID(job)], [Ability("test.noop", 1, 60, 3, "h")], Worker("w", "h", "1"))
    database.rows("UPDATE {s}.outbox SET lease_expires_at = {s}.clock(), due_at = {s}.clock()")
    assert eventually(broker.hints) == [job]
    assert database.value("SELECT outcome FROM {s}.attempts WHERE job_id = %s", job) == "lease_lost"
    assert eventually(lambda: database.rows(_PURGING)) == held  # between two of its naps it shows none
    database.rows("INSERT INTO public.go DEFAULT VALUES")
    eventually(lambda: not database.count("jobs WHERE kind = 'test.old'"))
