"""A consumer tells that it lives and what it runs, and that it has ended."""

from __future__ import annotations

from outbox.leases.presence import ProcessView, Role, list_processes
from support.consuming import Desk, handler
from support.waiting import until


def listed(desk: Desk) -> list[ProcessView]:
    """Return who is listed."""
    link = desk.database.link("test/list")
    try:
        return list_processes(link)
    finally:
        link.close()


def test_a_consumer_is_listed_while_it_runs(desk: Desk) -> None:
    """Under the name that its attempts carry, with its queues, kinds and versions; and no longer after its end."""
    running = desk.start(handler())
    [found] = until(lambda: listed(desk))
    assert (found.role, found.queues, found.runs) == (Role.CONSUMER, ("q",), ("test.task 1",))
    desk.submit("one")
    desk.done(1)
    assert desk.database.value("SELECT worker FROM {s}.attempts") == found.name
    running.stop()
    assert listed(desk) == []


def test_queues_with_slots_of_their_own_are_listed_by_name(desk: Desk) -> None:
    """A number is the consumer's own affair: whoever asks who works for a queue finds it by its name."""
    desk.start(handler(), queues=("q=2", "other"))
    [found] = until(lambda: listed(desk))
    assert sorted(found.queues) == ["other", "q"]


def test_a_consumer_works_without_the_table(desk: Desk) -> None:
    """On tables of an older revision it runs its jobs and keeps time all the same."""
    desk.database.rows("DROP TABLE {s}.processes")
    running = desk.start(handler())
    desk.submit("one")
    desk.done(1)
    running.stop()
