"""From committed jobs to hints at the broker, on real servers, while nothing fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from outbox import enqueue
from outbox_relay.ahead import FEWEST
from outbox_relay.lengths import FLOOR
from outbox_schemas.hint import decode_hint
from outbox_schemas.topology import AHEAD, queue_arguments

from .conftest import Noop, OtherNoop


def released(database: Any) -> int:
    """Return how many hints are out."""
    return int(database.count("outbox WHERE phase = 'released'"))


def jobs_in(messages: list[Any]) -> list[str]:
    """Return the job ids of messages, in order."""
    return [str(job) for _, body in messages for job in decode_hint(body)]


@pytest.mark.usefixtures("long_runways")
def test_every_due_job_is_hinted_once_in_order(database, settings, submit, start, broker, eventually) -> None:
    """A backlog goes out complete, once each, oldest first, as durable messages that hold nothing but ids."""
    batches = [submit(60) for _ in range(5)]
    start(settings)
    eventually(lambda: released(database) == 300)
    messages: list[Any] = []
    eventually(lambda: messages.extend(broker.take()) or len(jobs_in(messages)) == 300)
    jobs = jobs_in(messages)
    assert [set(jobs[start : start + 60]) for start in range(0, 300, 60)] == [set(batch) for batch in batches]
    for properties, _ in messages:
        assert (properties.delivery_mode, properties.content_type) == (2, "application/json")
        assert properties.message_id


def test_new_work_is_noticed_within_milliseconds(settings, submit, start, broker, database, eventually) -> None:
    """An idle relay releases a job soon after its commit, without any notification from the writer."""
    start(settings)
    submit()
    eventually(lambda: released(database) == 1)
    delays = []
    for _ in range(10):
        [job] = submit()
        eventually(lambda job=job: database.count("outbox WHERE job_id = %s AND phase = 'released'", job))
        query = (
            "SELECT extract(epoch FROM o.released_at - j.created_at)"
            " FROM {s}.outbox o JOIN {s}.jobs j ON j.id = o.job_id WHERE o.job_id = %s"
        )
        delays.append(float(database.value(query, job)))
    assert sorted(delays)[2] < 0.2, delays


def test_rolled_back_and_future_jobs_are_not_hinted(database, settings, start, broker, submit, eventually) -> None:
    """What was rolled back does not exist; what is due later waits in PostgreSQL."""
    with database.engine().connect() as connection:
        enqueue(connection, Noop(n=-1))
        connection.rollback()
    submit(1, run_at=database.clock.now().replace(year=2100))
    [now] = submit(1)
    start(settings)
    assert eventually(broker.hints) == [now]
    assert database.count("outbox WHERE phase = 'owed'") == 1


def test_job_that_commits_late_is_not_skipped(database, settings, start, submit, broker, eventually) -> None:
    """A transaction that began before others, and commits long after them, is relayed like any other."""
    start(settings)
    with database.engine().connect() as early:
        late = str(enqueue(early, Noop(n=-1)).id)
        [first] = submit(1)
        assert eventually(broker.hints) == [first]
        early.commit()
    assert eventually(broker.hints) == [late]


def test_runway_bounds_what_is_out(database, configure, submit, start, broker, eventually) -> None:
    """Beyond the runway the backlog stays in PostgreSQL, where it can still be reordered, paused or cancelled."""
    submit(120)
    start(configure(runway=40, batch=25))
    eventually(lambda: released(database) == 40)
    submit(1, OtherNoop)
    eventually(lambda: released(database) == 41)
    assert database.count("outbox WHERE phase = 'owed'") == 80


@pytest.mark.usefixtures("long_runways")
def test_many_relays_release_each_hint_once(database, configure, submit, start, broker, eventually) -> None:
    """Relays side by side share the work without a hint being sent twice."""
    ids = submit(600)
    for _ in range(3):
        start(configure(batch=50))
    eventually(lambda: released(database) == 600)
    seen: Counter[str] = Counter()

    def all_here() -> bool:
        seen.update(broker.hints())
        return len(seen) == 600

    eventually(all_here)
    seen.update(broker.hints())
    assert seen == Counter(ids)


@pytest.mark.usefixtures("long_runways")
def test_queues_share_a_small_window(database, configure, submit, start, broker, eventually) -> None:
    """A large backlog in one queue does not keep another queue waiting for the window."""
    submit(500, OtherNoop)  # its name comes first
    submit(5)
    start(configure(window=5, batch=500))
    eventually(lambda: database.count("outbox WHERE phase = 'released' AND queue = 'q'") == 5)
    before = (
        "outbox WHERE queue = 'other' AND released_at <= (SELECT max(released_at) FROM {s}.outbox WHERE queue = 'q')"
    )
    assert database.count(before) < 250
    eventually(lambda: released(database) == 505)


def test_queue_declared_elsewhere_with_other_arguments_is_used_as_it_is(
    settings, submit, start, broker, eventually, caplog
) -> None:
    """One clear line names queue, arguments and remedy; hints flow all the same, without a hot loop."""
    broker.declare("q", {"x-max-priority": 3})
    start(settings)
    for _ in range(3):
        [job] = submit(1)
        assert eventually(broker.hints) == [job]
    lines = [record for record in caplog.records if record.getMessage() == "a queue exists with other arguments"]
    assert len(lines) == 1
    facts = vars(lines[0])
    assert facts["queue"] == f"{settings.amqp_prefix}.q"
    assert facts["wanted"] == queue_arguments("quorum")
    assert "PRECONDITION_FAILED" in facts["reply"]
    assert "delete the queue" in facts["remedy"]


def test_classic_queues_by_setting(settings, submit, start, broker, eventually) -> None:
    """The type of new queues is a setting."""
    start(settings.model_copy(update={"queue_type": "classic"}))
    [job] = submit(1)
    assert eventually(broker.hints) == [job]
    broker.declare("q", queue_arguments("classic"))  # the broker refuses any other type


def test_who_comes_to_a_full_queue_goes_ahead(database, settings, submit, start, broker, eventually) -> None:
    """With the runway full of a flood, other tenants' jobs go out all the same, marked; few where nobody takes any."""
    submit(300, tenant="flood")
    start(settings)
    eventually(lambda: released(database) == FLOOR)
    [ann] = submit(1, tenant="ann")
    eventually(lambda: released(database) == FLOOR + 1)
    submit(300, tenant="zoe")
    eventually(lambda: released(database) == FLOOR + FEWEST)
    messages: list[Any] = []
    eventually(lambda: messages.extend(broker.take()) or len(jobs_in(messages)) == FLOOR + FEWEST)
    ahead = [jobs_in([message]) for message in messages if message[0].priority == AHEAD]
    assert ahead[0] == [ann]
    assert sum(map(len, ahead)) == FEWEST
    owners = dict(database.rows("SELECT job_id::text, tenant FROM {s}.outbox"))
    assert {owners[job] for jobs in ahead[1:] for job in jobs} == {"zoe"}
