"""Crowded queues on a real database: tenants in turn, by weight, beside pauses, priorities and very many tenants."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from outbox import pause
from outbox.database.floors import Cadence
from outbox.database.link import Link
from outbox.releasing.gleaning import Gleaner
from outbox.releasing.relaying import ReleasedHint, release
from outbox.releasing.rounds import MOST_VISITS, _look
from outbox.releasing.sharing import ALONE_S, SEVERAL_S, Sharer
from support.database import Database
from support.jobs import ABILITIES, OtherNote, submit

WAITING = "INSERT INTO {s}.tenant_limits (queue, name, weight, updated_at) VALUES ('notes', %s, %s, now())"
# Rows of the outbox alone: a release looks at nothing else.
FILL = """
INSERT INTO {s}.outbox (job_id, queue, tenant, order_key, due_at)
SELECT gen_random_uuid(), 'notes', 'tenant-' || n, now() + %s * interval '1 s', now() + %s * interval '1 s'
FROM generate_series(1, %s) AS n
"""


def crowded(link: Link, sharer: Sharer | None = None) -> Sharer:
    """Return a sharer that has found the queue `notes` crowded, by taking one hint."""
    sharer = sharer if sharer is not None else Sharer(link, rehint_after_s=10)
    assert len(sharer.release("notes", batch=1)) == 1
    assert sharer.crowded("notes")
    return sharer


def tenants(database: Database, hints: Sequence[ReleasedHint]) -> list[str]:
    """Return whose these hints are, in their order."""
    owners = dict(database.rows("SELECT job_id, tenant FROM {s}.outbox"))
    return [owners[hint.job_id] for hint in hints]


@pytest.mark.usefixtures("sound")
def test_small_tenants_are_in_the_next_release_beside_a_flood(database: Database, link: Link) -> None:
    """Behind five hundred older jobs of one tenant, the only ones of others go with the next ten, among the first."""
    submit(database, 500, tenant="flood")
    sharer = crowded(link)
    for name in ("ann", "zoe"):
        submit(database, 1, tenant=name)
    got = tenants(database, sharer.release("notes", batch=10))
    assert Counter(got) == {"flood": 8, "ann": 1, "zoe": 1}
    assert {"ann", "zoe"} <= set(got[:3])


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("room", [1, 7, 40])
def test_busy_tenants_share_by_weight(database: Database, link: Link, room: int) -> None:
    """With weights of three and one the releases are three to one, whatever the room at a time."""
    database.rows(WAITING, "big", 3)
    submit(database, 150, tenant="big")
    submit(database, 150, tenant="small")
    sharer = crowded(link)
    got: list[str] = []
    while len(got) < 120:
        got += tenants(database, sharer.release("notes", batch=room))
    assert Counter(got)["big"] / len(got) == pytest.approx(0.75, rel=0.05)


@pytest.mark.usefixtures("sound")
def test_whose_turn_has_just_ended_goes_last_in_the_next_round(database: Database, link: Link) -> None:
    """Of what one release gives, the first to go is not whose job was the last of the release before."""
    for name in ("ann", "bob", "zoe"):
        submit(database, 4, tenant=name)
    sharer = crowded(link)
    served = [tenants(database, sharer.release("notes", batch=room)) for room in (1, 3, 3)]
    assert [sorted(one) for one in served[1:]] == [["ann", "bob", "zoe"]] * 2
    assert [one[-1] for one in served[1:]] == [before[-1] for before in served[:-1]]


@pytest.mark.usefixtures("sound")
def test_an_idle_share_is_lent_and_all_that_is_due_goes(database: Database, link: Link) -> None:
    """The room that small tenants don't need is the flood's, and once there is room for all, plain order is back."""
    submit(database, 100, tenant="flood")
    submit(database, 2, tenant="small")
    sharer = crowded(link)
    assert Counter(tenants(database, sharer.release("notes", batch=50)))["flood"] >= 48
    assert len(sharer.release("notes", batch=200)) == 51
    assert not sharer.crowded("notes")


@pytest.mark.usefixtures("sound")
def test_a_tenant_s_own_line_goes_by_priority(database: Database, link: Link) -> None:
    """A priority brings a job forward among its tenant's, and takes nothing from another tenant."""
    submit(database, 50, tenant="a")
    submit(database, 50, tenant="b")
    sharer = crowded(link)
    urgent = submit(database, 3, tenant="a", priority=50)
    hints = sharer.release("notes", batch=6)
    assert Counter(tenants(database, hints)) == {"a": 3, "b": 3}
    assert set(urgent) <= {hint.job_id for hint in hints}


@pytest.mark.usefixtures("sound")
def test_negative_priority_comes_last_whoever_has_it(database: Database, link: Link) -> None:
    """Such a job that has not aged waits until no tenant has any other, and then needs nothing but room."""
    low = submit(database, 2, tenant="low", priority=-5)
    submit(database, 20, tenant="a")
    submit(database, 20, tenant="b")
    sharer = crowded(link)
    assert "low" not in tenants(database, sharer.release("notes", batch=30))
    hints = sharer.release("notes", batch=30)
    assert [hint.job_id for hint in hints[-2:]] == low or {hint.job_id for hint in hints[-2:]} == set(low)
    assert len(hints) == 11


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize(
    ("scope", "name"), [("tenant", "a"), ("queue", "notes"), ("everything", ""), ("kind", "test.note")]
)
def test_pauses_hold_in_a_crowded_queue(database: Database, link: Link, scope: str, name: str) -> None:
    """What is paused after a queue was found crowded is not released tenant by tenant either."""
    submit(database, 50, tenant="a")
    submit(database, 50, tenant="b")
    submit(database, 50, tenant="c")
    sharer = crowded(link)
    with database.engine().begin() as connection:
        pause(connection, scope, name, by="ada", reason="the bank is closed")
    got = Counter(tenants(database, sharer.release("notes", batch=20)))
    assert got == ({"b": 10, "c": 10} if scope == "tenant" else {})


@pytest.mark.usefixtures("sound")
def test_one_tenant_alone_goes_in_plain_order(database: Database, link: Link) -> None:
    """Nobody takes turns with himself; as soon as another comes it is seen within a moment."""
    now = 1000.0
    submit(database, 100, tenant="flood")
    sharer = crowded(link, Sharer(link, rehint_after_s=10, clock=lambda: now))
    sharer.release("notes", batch=10)
    submit(database, 1, tenant="small")
    assert "small" not in tenants(database, sharer.release("notes", batch=10))
    now += 0.03
    assert "small" in tenants(database, sharer.release("notes", batch=10))


@pytest.mark.usefixtures("sound")
def test_consumers_without_a_broker_take_turns_too(database: Database, link: Link) -> None:
    """What they release themselves is shared as the relay shares it, and only what they can run."""
    submit(database, 100, tenant="flood")
    foreign = submit(database, payloads=[OtherNote(key="x")], tenant="small")
    small = submit(database, 1, tenant="small")
    database.rows("UPDATE {s}.outbox SET queue = 'notes' WHERE job_id = %s", foreign[0])
    database.rows("UPDATE {s}.jobs SET queue = 'notes' WHERE id = %s", foreign[0])
    gleaner = Gleaner(link, abilities=ABILITIES, rehint_after_s=10)
    gleaner.release("notes", batch=5)
    taken = gleaner.release("notes", batch=4)
    assert small[0] in taken
    assert foreign[0] not in taken
    rest = [job for _ in range(30) for job in gleaner.release("notes", batch=10)]
    assert len(rest) == 101 - 5 - 4


def test_thousands_of_tenants_cost_a_release_some_milliseconds(database: Database, link: Link) -> None:
    """With ten thousand tenants, all of them due, a visit sees a bounded number of them, each has one turn before any
    has a second, and a release costs some of the plain ones that are made beside it.
    """
    database.rows(FILL, -60, -60, 10_000)
    database.rows("UPDATE {s}.outbox SET queue = 'plain'")
    database.rows(FILL, -60, -60, 10_000)
    database.rows(FILL, -59, -59, 10_000)
    sharer = crowded(link)
    went: list[ReleasedHint] = []
    took, plain = [], []
    for _ in range(9):
        began = time.perf_counter()
        went += sharer.release("notes", batch=1000)
        took.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert len(release(link, "plain", batch=1000, rehint_after_s=10)) == 1000
        plain.append(time.perf_counter() - began)
    got = tenants(database, went)
    assert len(got) == 9000
    assert len(set(got)) >= 8999
    assert min(took) < 10 * min(plain), (took, plain)


def test_tenants_with_nothing_but_future_jobs_leave_no_room_unused(database: Database, link: Link) -> None:
    """However many there are, they are stepped over, and all the room is for those who have something due."""
    database.rows(FILL, 3600, 3600, 3 * MOST_VISITS)
    submit(database, 100, tenant="zoe")
    sharer = crowded(link)
    submit(database, 1, tenant="yve")
    hints = sharer.release("notes", batch=20)
    assert len(hints) == 20
    assert "yve" in tenants(database, hints)


def test_beside_an_old_snapshot_lines_begin_where_they_were_seen_to(
    database: Database, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a look from the beginning is dear, the next visits start at the places that it saw, and what comes to lie
    below is found by the next dear one.
    """
    submit(database, 60, tenant="a")
    submit(database, 60, tenant="b")
    sharer = crowded(link)
    line = sharer.rounds.of("notes")
    now = 1000.0
    line.cadence = Cadence(clock=lambda: now)
    looks = []

    def dear(*arguments: Any) -> Any:
        nonlocal now
        looks.append(len(line.floors.all()))
        now += 0.1 if not line.floors.all() else 0.0
        return _look(*arguments)

    monkeypatch.setattr("outbox.releasing.rounds._look", dear)
    assert len(sharer.release("notes", batch=10)) == 10
    late = submit(database, 1, tenant="b", run_at=database.clock.now() - timedelta(hours=1))
    assert late[0] not in {hint.job_id for hint in sharer.release("notes", batch=10)}
    now += 10
    assert late[0] in {hint.job_id for hint in sharer.release("notes", batch=10)}
    assert looks == [0, 2, 0]


@pytest.mark.usefixtures("sound")
def test_who_comes_to_a_busy_queue_goes_ahead_in_turn(database: Database, link: Link) -> None:
    """The first look finds nobody new; who comes then gets so many at most, round by round, and the flood none. Looks
    have their time, unless others are released next.
    """
    submit(database, 50, tenant="flood")
    now = 0.0
    sharer = crowded(link, Sharer(link, rehint_after_s=10, clock=lambda: now))
    assert sharer.release_joiners("notes", most=5) == []
    assert not sharer.several("notes")
    submit(database, 3, tenant="ann")
    submit(database, 1, tenant="zoe")
    now += ALONE_S
    assert tenants(database, sharer.release_joiners("notes", most=3)) == ["ann", "zoe", "ann"]
    assert sharer.several("notes")
    assert sharer.release_joiners("notes", most=3) == []
    assert tenants(database, sharer.release_joiners("notes", most=3, before_others=True)) == ["ann"]
    assert sharer.release_joiners("notes", most=3, before_others=True) == []


@pytest.mark.usefixtures("sound")
def test_who_comes_between_the_look_and_the_release_is_left_to_the_next_look(database: Database, link: Link) -> None:
    """Taken in its turn it would go behind all that is out; but not longer than there is room ahead for it."""
    submit(database, 50, tenant="flood")
    now = 0.0
    sharer = crowded(link, Sharer(link, rehint_after_s=10, clock=lambda: now))
    sharer.release_joiners("notes", most=5)
    submit(database, 1, tenant="ann")
    now += ALONE_S  # until then one tenant alone is served in plain order
    assert tenants(database, sharer.release("notes", batch=4)) == ["flood"] * 4
    assert "ann" in tenants(database, sharer.release("notes", batch=4)), "nobody has looked: it has its turn"
    submit(database, 1, tenant="zoe")
    now += ALONE_S
    assert tenants(database, sharer.release_joiners("notes", most=1)) == ["zoe"]
    submit(database, 1, tenant="kim")
    now += ALONE_S
    assert "kim" in tenants(database, sharer.release("notes", batch=4)), "no room was left ahead"


@pytest.mark.usefixtures("sound")
def test_looks_for_those_who_come_are_rare_where_one_is_alone(database: Database, link: Link) -> None:
    """A queue of one tenant is not walked through at each look of a relay."""
    now = [100.0]
    sharer = Sharer(link, rehint_after_s=10, clock=lambda: now[0])
    submit(database, 50, tenant="flood")
    for _ in range(2):
        sharer.release_joiners("notes", most=5, before_others=True)
        submit(database, 1, tenant="ann")
        assert sharer.release_joiners("notes", most=5, before_others=True) == []
        now[0] += ALONE_S
        assert tenants(database, sharer.release_joiners("notes", most=5)) == ["ann"]
        now[0] += SEVERAL_S + ALONE_S
