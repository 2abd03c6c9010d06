"""A flood of jobs that wait for one concurrency key holds up nobody behind it, however little room there is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

import pytest

from outbox.database.link import Link
from outbox.releasing.relaying import release
from outbox.releasing.rounds import Rounds
from outbox.releasing.sharing import Sharer
from support.database import Database
from support.jobs import submit
from support.keyed import Keyed, Ordered, Pair, of, places, take
from support.limits import go as limited
from support.limits import limit

FLOOD = 600

Go = Callable[[], list[UUID]]


def by_limits(database: Database, link: Link) -> Go:
    """Release from a queue in which three may run, as a relay does."""
    limit(database, max_running=3)
    rounds = Rounds()
    return lambda: [hint.job_id for hint in limited(link, 1, rounds=rounds).hints]


def by_plain_order(_database: Database, link: Link) -> Go:
    """Release for one free slot, as a consumer without a broker does."""
    return lambda: [hint.job_id for hint in release(link, "notes", batch=1, rehint_after_s=10)]


def by_tenants(_database: Database, link: Link) -> Go:
    """Release for one free slot from a queue with more due than there is room for."""
    sharer = Sharer(link, rehint_after_s=10)
    return lambda: [hint.job_id for hint in sharer.release("notes", batch=1)]


@pytest.mark.parametrize("way", [by_limits, by_plain_order, by_tenants])
@pytest.mark.parametrize("kind", [Keyed, Ordered])
def test_a_flood_of_one_key_is_passed_in_a_few_looks(
    database: Database, link: Link, way: Callable[[Database, Link], Go], kind: type[Keyed]
) -> None:
    """Of its jobs one tells for all: the others are set aside with it, and what stands behind them goes at once."""
    flood = submit(database, payloads=of(kind, FLOOD))
    go = way(database, link)
    (running,) = take(link, go())
    assert running.lease.job_id in flood
    (free,) = submit(database, 1)
    went = [job for _ in range(3) for job in go()]
    assert went == [free]
    assert places(database) == {"aside": FLOOD - 1, "leased": 1, "released": 1}


def put_aside(database: Database, job_id: UUID) -> None:
    """Set a job aside for its key, as its release does."""
    database.rows(
        "UPDATE {s}.outbox SET order_key = order_key + interval '6000 years', due_at = due_at + interval '6000 years', "
        "last_error = 'waits for its key' WHERE job_id = %s RETURNING 1",
        job_id,
    )


def test_who_might_still_go_is_left_in_line(database: Database, link: Link) -> None:
    """A kind with a higher number on the same key, and what comes before in an order, are not set aside with others."""
    _, second, third = submit(database, payloads=of(Keyed, 3))
    submit(database, payloads=of(Pair, 2))
    take(link, [hint.job_id for hint in release(link, "notes", batch=1, rehint_after_s=10)])
    put_aside(database, second)
    rest = link.run("set_rest_aside", queue="notes", job_ids=[second], most=100)
    assert [row.job_id for row in rest] == [third]
    assert places(database) == {"aside": 2, "leased": 1, "owed": 2}
    one, two, three = submit(database, payloads=of(Ordered, 3, on="account 2"))
    put_aside(database, two)
    rest = link.run("set_rest_aside", queue="notes", job_ids=[two], most=100)
    assert [row.job_id for row in rest] == [three]
    assert one in [hint.job_id for hint in release(link, "notes", batch=9, rehint_after_s=10)]


def test_what_a_hand_makes_due_aside_holds_up_nobody(database: Database, link: Link) -> None:
    """A job that stands aside for its key and is due there goes back to where it stood; the others of its queue go."""
    _, second = submit(database, payloads=of(Keyed, 2))
    take(link, [hint.job_id for hint in release(link, "notes", batch=1, rehint_after_s=10)])
    assert release(link, "notes", batch=1, rehint_after_s=10) == []
    where = "SELECT order_key, due_at, last_error FROM {s}.outbox WHERE job_id = %s"
    aside = database.rows(where, second)
    assert aside[0][2] == "waits for its key"
    database.rows("UPDATE {s}.outbox SET due_at = {s}.clock() WHERE job_id = %s", second)
    others = submit(database, 2)
    assert [hint.job_id for hint in release(link, "notes", batch=9, rehint_after_s=10)] == others
    assert database.rows(where, second) == aside


def test_what_is_not_due_is_not_set_aside(database: Database, link: Link) -> None:
    """The rest of a key that comes later keeps its time, though its priority puts it in front of the line."""
    now = database.clock.now()
    submit(database, payloads=of(Keyed, 2))
    late = submit(database, payloads=of(Keyed, 1), run_at=now + timedelta(minutes=50), priority=100)
    take(link, [hint.job_id for hint in release(link, "notes", batch=1, rehint_after_s=10)])
    assert release(link, "notes", batch=1, rehint_after_s=10) == []
    rows = dict(database.rows("SELECT job_id, last_error FROM {s}.outbox WHERE phase = 'owed'"))
    assert rows.pop(late[0]) is None
    assert list(rows.values()) == ["waits for its key"]


class Elsewhere(Keyed):
    """Jobs of the same keys in another queue."""

    kind: ClassVar[str] = "test.elsewhere"
    queue: ClassVar[str] = "others"


class Apart(Keyed):
    """Jobs of the same keys in another group."""

    kind: ClassVar[str] = "test.apart"
    limit_group: ClassVar[str | None] = "apart"


def test_only_what_waits_for_the_same_is_set_aside(database: Database, link: Link) -> None:
    """Other keys, groups, tenants and queues keep their places in line, however alike the rest is; and a tenant's own
    line is looked through, whatever stands before it in others'.
    """
    submit(database, 3, tenant="aaa")
    submit(database, payloads=[*of(Elsewhere, 1), *of(Apart, 1), *of(Keyed, 1, on="other")])
    _, away = submit(database, payloads=[*of(Keyed, 1), *of(Keyed, 1, on="else")], tenant="zzz")
    (unasked,) = submit(database, payloads=of(Keyed, 1, on="other"))
    first, *rest = submit(database, payloads=of(Keyed, 3), priority=90)
    database.rows(
        "UPDATE {s}.outbox SET order_key = order_key + interval '6000 years', last_error = 'waits for its key' "
        "WHERE job_id = ANY (%s)", [first, away, unasked],
    )  # fmt: skip
    assert link.run("set_rest_aside", queue="notes", job_ids=rest, most=100) == [], "these are in line again by now"
    found = link.run("set_rest_aside", queue="notes", job_ids=[first, away], most=2)
    assert {row.job_id for row in found} == set(rest)
    assert link.run("set_rest_aside", queue="notes", job_ids=[first, away], most=100) == []
    assert places(database) == {"aside": 5, "owed": 7}
