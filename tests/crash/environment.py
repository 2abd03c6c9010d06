"""What happens in a cell where it is not a process of ours that fails, but what it stands on."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

from crash.broker import Queue
from crash.cutting import CommitCutter, Trigger
from crash.processes import Armed
from crash.scripts import BATCH, BATCHES, JOBS, TOGETHER
from crash.stage import LEASE_S, CellFailed, Stage
from crash.workload import Applied, Mailed, Plain, Stepped
from outbox.processes.barriers import Barrier
from outbox.servers import Postgres, RabbitMQ

RECOVERY_S = LEASE_S + 2.0
REHINT_S = 15.0
# The whole command: `BEGIN ISOLATION LEVEL READ COMMITTED` holds the word, too.
_COMMIT = "COMMIT\0"
_TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND application_name LIKE 'outbox-%'"
)


def recovery_time(stage: Stage) -> None:
    """Measure from kill -9 to the claim elsewhere, by the database's clock: lease + 2 s at most."""
    if stage.amqp_url is not None:
        stage.relay()
    jobs = stage.submit(TOGETHER, first_s=60)
    victim = stage.consumer()
    stage.running(len(jobs))
    stage.consumer()
    # The victim's slots are full, so this one shows that the other consumer is at work.
    stage.submit(1, [Applied])
    stage.until(lambda: stage.database.count("jobs WHERE state = 'succeeded'"), "the other consumer works")
    killed_at = stage.database.value("SELECT {s}.clock()")
    victim.kill()
    stage.drained()
    again_at = stage.database.value("SELECT max(claimed_at) FROM {s}.attempts WHERE number = 2")
    took_s = (again_at - killed_at).total_seconds()
    stage.facts["recovered after"] = f"{took_s:.2f} s"
    if stage.database.count("attempts WHERE number = 2") != len(jobs) or took_s > RECOVERY_S:
        raise CellFailed(f"leases were taken again after {took_s:.2f} s; {RECOVERY_S:g} s are allowed")


def rehint_time(stage: Stage) -> None:
    """Purge the queue and measure, at default settings, until all hints are out again: 15 s at most."""
    stage.relay(OUTBOX_RELAY_REHINT_AFTER_S="", OUTBOX_RELAY_REHINT_BUSY_AFTER_S="")
    hints_wait(stage, JOBS)
    purged_at = stage.database.value("SELECT {s}.clock()")
    queue_of(stage).purge()
    again = "outbox WHERE phase = 'released' AND release_count > 1"
    stage.until(lambda: stage.database.count(again) == JOBS, "the hints are out again")
    took_s = (stage.database.value("SELECT max(released_at) FROM {s}.outbox") - purged_at).total_seconds()
    stage.consumer()
    stage.facts["hinted again after"] = f"{took_s:.2f} s"
    if took_s > REHINT_S:
        raise CellFailed(f"lost hints were replaced after {took_s:.2f} s; {REHINT_S:g} s are allowed")


def two_relays(stage: Stage) -> None:
    """Kill one of two relays while jobs flow; the other one is enough."""
    first, _second = stage.relay(), stage.relay()
    stage.consumer()
    _flow(stage, first.kill)


def queue_purged(stage: Stage) -> None:
    """Drop the hints of waiting jobs."""
    stage.relay()
    hints_wait(stage, JOBS)
    if not queue_of(stage).purge():
        raise CellFailed("there was no hint to lose")
    stage.consumer()


def queue_deleted(stage: Stage) -> None:
    """Delete the queue under a relay and a consumer that use it."""
    stage.relay()
    stage.consumer()
    _flow(stage, queue_of(stage).delete)


def broker_killed(stage: Stage, broker: RabbitMQ) -> None:
    """Kill the broker while jobs flow, see work go on without it, and start it again."""
    _without_broker(stage, broker, wipe=False)


def broker_wiped(stage: Stage, broker: RabbitMQ) -> None:
    """Kill the broker and take everything that it had: it comes back knowing of no queue."""
    _without_broker(stage, broker, wipe=True)


def postgres_crashed(stage: Stage, server: Postgres) -> None:
    """Crash PostgreSQL while jobs flow."""
    stage.relay()
    for _ in range(2):
        stage.consumer()
    stage.submit(40, first_s=0.2)
    stage.until(lambda: stage.database.count("jobs WHERE state = 'succeeded'") > 4, "jobs flow")
    server.kill()
    server.start()
    stage.reopened()
    stage.submit(JOBS)


def postgres_crashed_at(stage: Stage, server: Postgres, barrier: Barrier) -> None:
    """Crash PostgreSQL while a consumer is at a barrier."""
    _while_frozen(stage, barrier, lambda: (server.kill(), server.start(), stage.reopened()))


def backends_terminated_at(stage: Stage, barrier: Barrier) -> None:
    """End every connection of ours while a consumer is at a barrier, long before its leases end."""
    _while_frozen(stage, barrier, lambda: stage.database.rows(_TERMINATE))


def backends_terminated(stage: Stage) -> None:
    """End every connection of ours again and again while jobs flow."""
    stage.relay()
    for _ in range(2):
        stage.consumer()
    stage.submit(40, first_s=0.3)
    stage.until(lambda: stage.database.count("jobs WHERE state = 'succeeded'") > 4, "jobs flow")
    until = time.monotonic() + 3
    ended = 0
    while time.monotonic() < until:
        ended += len(stage.database.rows(_TERMINATE))
        time.sleep(0.15)
    stage.facts["connections ended"] = ended


def completion_cut(stage: Stage) -> None:
    """Swallow the answers to commits of `apply`; the consumer must find out, not guess."""
    consumer = _cut(stage, Trigger("outbox-consumer/completions", _COMMIT), Applied)
    _resolved(stage, consumer, "commits_resolved")


def effect_cut(stage: Stage) -> None:
    """Swallow the answers to an effect's announcement and to its confirmation: each is written once more."""
    _cut(stage, Trigger("outbox-consumer/handlers", "effects"), Mailed)
    stage.facts["requests heard"] = stage.provider.books().heard


def step_cut(stage: Stage) -> None:
    """Swallow the answers to commits of `job.transaction()`: the attempt fails, and the next one finds its step."""
    _cut(stage, Trigger("outbox-consumer/handlers", _COMMIT), Stepped)


def batch_cut(stage: Stage) -> None:
    """Swallow the answers to batched completions."""
    consumer = _cut(stage, Trigger("outbox-consumer/end", "SET state = 'succeeded'"), Plain)
    _resolved(stage, consumer, "commits_resolved")


def claim_cut(stage: Stage) -> None:
    """Swallow the answers to claims: nobody knows of the leases until they are looked for."""
    consumer = _cut(stage, Trigger("outbox-consumer/claim", "gen_random_uuid()"), Applied)
    _resolved(stage, consumer, "handed_back")


def submission_cut(stage: Stage) -> None:
    """Swallow the answers to a writer's commits; it asks again and gets its own jobs."""
    stage.relay()
    stage.consumer()
    with CommitCutter(stage.database.url, Trigger("crash-writer", _COMMIT), times=2) as cutter:
        stage.database_url = cutter.url
        writer = stage.writer(BATCHES, BATCH)
        stage.until(lambda: writer.code is not None, "the writer ended")
        _expect_cuts(stage, cutter)
    done = "jobs WHERE state = 'succeeded'"
    stage.until(lambda: stage.database.count(done) == BATCH * BATCHES, "each order has run")


def _cut(stage: Stage, trigger: Trigger, kind: type[Any]) -> Any:
    stage.relay()
    with CommitCutter(stage.database.url, trigger, times=2) as cutter:
        stage.database_url = cutter.url
        consumer = stage.consumer()
        stage.submit(JOBS, [kind])
        stage.drained()
        _expect_cuts(stage, cutter)
        stage.finish()
    return consumer


def _expect_cuts(stage: Stage, cutter: CommitCutter) -> None:
    stage.facts["answers swallowed"] = cutter.cut
    if not cutter.cut:
        raise CellFailed("no answer was swallowed")


def _resolved(stage: Stage, consumer: Any, counter: str) -> None:
    count = consumer.counters().get(counter, 0)
    stage.facts[counter.replace("_", " ")] = count
    if not count:
        raise CellFailed(f"{consumer.name} counted no {counter}")


def _while_frozen(stage: Stage, barrier: Barrier, fault: Callable[[], object]) -> None:
    stage.relay()
    stage.submit(JOBS)
    victim = stage.consumer(Armed(barrier, "stop"))
    stage.held(victim)
    fault()
    victim.signal(signal.SIGCONT)


def _without_broker(stage: Stage, broker: RabbitMQ, *, wipe: bool) -> None:
    stage.relay()
    consumers = [stage.consumer() for _ in range(2)]
    _flow(stage, broker.kill)
    if wipe and broker.data_dir is not None:
        for path in broker.data_dir.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    stage.submit(JOBS)
    stage.drained()
    broker.start()
    stage.submit(JOBS)
    stage.drained()
    stage.finish()
    direct = sum(consumer.counters()["claimed_without_broker"] for consumer in consumers)
    stage.facts["claimed without the broker"] = direct
    if not direct:
        raise CellFailed("nothing was claimed without the broker")


def _flow(stage: Stage, fault: Callable[[], object]) -> None:
    """Have jobs flow, and the fault in the middle."""
    stage.submit(40, first_s=0.2)
    stage.until(lambda: stage.database.count("jobs WHERE state = 'succeeded'") > 4, "jobs flow")
    fault()
    stage.submit(JOBS)


def hints_wait(stage: Stage, count: int) -> None:
    """Submit so many jobs, and wait until their hints stand at the broker."""
    queue = queue_of(stage)
    stage.submit(count)
    released = "outbox WHERE phase = 'released'"
    stage.until(lambda: stage.database.count(released) == count and queue.depth() >= count, "hints wait at the broker")


def queue_of(stage: Stage) -> Queue:
    """Return a hand on the cell's queue."""
    if stage.amqp_url is None:
        raise CellFailed("this cell needs a broker")
    return Queue(stage.amqp_url, stage.prefix)
