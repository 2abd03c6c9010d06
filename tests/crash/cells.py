"""The matrix: every barrier with every way to be hit there, and every fault of what the processes stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from crash import environment, unfenced
from crash.deciding import effect_resolved_at, redrive_decided_at
from crash.doubts import DOUBTED
from crash.keeping import expiry_at, hints_at, limits_at, one_slot, pauses_at, sets_at
from crash.processes import Armed
from crash.purging import purge_at
from crash.rotation import rotation_at
from crash.scheduling import relay_in_schedules
from crash.scripts import (
    WILL_WRITE,
    Wake,
    canceller_at,
    consumer_at,
    relay_at,
    relay_in_recovery,
    relay_in_redrive,
    writer_at,
)
from crash.workload import KINDS, LEDGERED, ON_THREADS, Concurrent, Noticed, Stepped
from outbox.processes.barriers import Barrier


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        name: unique; says what happens.
        run: the script; it leaves everything that it started running.
        barrier: what it proves to have been reached.
        broker: whether the cell has a broker.
        server: "broker" or "postgres" for a script that is given a private one to crash, as a second argument.
        alone: whether it measures time, so that no other cell may run beside it.
        guilty: what the checker must find, in cells that are made to be caught; None for all others.
        quick: whether the usual test run has it too.
    """

    name: str
    run: Callable[..., None]
    barrier: Barrier | None = None
    broker: bool = True
    server: str | None = None
    alone: bool = False
    guilty: str | None = None
    quick: bool = False


_B = Barrier
_WRITER = (_B.WRITER_AFTER_INSERT, _B.WRITER_AFTER_COMMIT)
_RELAY = (_B.RELAY_AFTER_RELEASE, _B.RELAY_AFTER_PUBLISH, _B.RELAY_AFTER_CONFIRM)
_LIMITS = (_B.LIMITS_BEFORE_COMMIT, _B.RELAY_AFTER_LIMITS)
_RECOVERY = (_B.RELAY_BEFORE_RECOVERY, _B.RELAY_AFTER_RECOVERY)
_CANCEL = (_B.CANCEL_BEFORE_BATCH, _B.CANCEL_AFTER_HOLD, _B.CANCEL_AFTER_END, _B.CANCEL_AFTER_COMMIT)
_REDRIVE = (_B.RELAY_BEFORE_REDRIVE, _B.RELAY_AFTER_REDRIVE)
_SCHEDULE = (_B.RELAY_BEFORE_SCHEDULE, _B.RELAY_AFTER_SCHEDULE)
_WITH_HINTS = (_B.CONSUMER_AFTER_RECEIVE, _B.CONSUMER_AFTER_ACK)
_CONSUMER = (
    _B.CONSUMER_AFTER_CLAIM,
    _B.CONSUMER_BEFORE_HANDLE,
    _B.CONSUMER_BEFORE_EXTERNAL_EFFECT,
    _B.CONSUMER_AFTER_EXTERNAL_EFFECT,
    _B.CONSUMER_AFTER_HANDLE,
    _B.CONSUMER_AFTER_FENCE,
    _B.CONSUMER_AFTER_APPLY,
    _B.CONSUMER_AFTER_COMMIT,
    _B.CONSUMER_BEFORE_HEARTBEAT,
)
_PURGE = (_B.PURGE_BEFORE_COMMIT, _B.PURGE_AFTER_COMMIT)
_ROTATION = (_B.KEYS_BEFORE_COMMIT, _B.KEYS_AFTER_COMMIT)
# The batch that finds nothing more and ends the rotation.
_LAST_BATCH = 5
_SETS = (_B.SETS_AFTER_LOOK, _B.SETS_AFTER_CLOSE)
_OPERATOR = (_B.OPERATOR_BEFORE_COMMIT, _B.OPERATOR_AFTER_COMMIT)
_STEP = (_B.STEP_BEFORE_COMMIT, _B.STEP_AFTER_COMMIT)
_AMID = (_B.CONSUMER_BEFORE_HANDLE, _B.CONSUMER_AFTER_EXTERNAL_EFFECT, _B.CONSUMER_AFTER_HANDLE)
_EFFECT = (_B.EFFECT_BEFORE_PENDING, _B.EFFECT_AFTER_PENDING, _B.EFFECT_AFTER_SEND, _B.EFFECT_AFTER_CONFIRM)
# Where an effect is in doubt once; and its attempt is tried again.
_IN_DOUBT = (
    _B.EFFECT_BEFORE_LEAVE,
    _B.EFFECT_AFTER_LEAVE,
    _B.CONSUMER_AFTER_COMMIT,
    _B.EFFECT_BEFORE_RECONCILE,
    _B.EFFECT_AFTER_RECONCILE,
    _B.EFFECT_BEFORE_AGAIN,
)
_WITHOUT_HINTS = (_B.CONSUMER_BROKERLESS_AFTER_RELEASE,)
_LATER = (_B.CONSUMER_AFTER_HANDLE, _B.CONSUMER_AFTER_APPLY, _B.CONSUMER_AFTER_COMMIT)
_ON_LOOP = (_B.CONSUMER_BEFORE_EXTERNAL_EFFECT, _B.CONSUMER_AFTER_APPLY)
_ACTIONS = ("kill", "stop")

# One of each group, for the usual test run.
QUICK = {
    "writer.after_insert kill @2",
    "relay.after_publish kill",
    "relay.after_recovery kill",
    "relay.before_schedule kill @4",
    "cancel.after_end kill",
    "consumer.after_claim kill",
    "consumer.after_handle stop",
    "consumer.after_apply kill",
    "consumer.brokerless_after_release kill without broker",
    "effect.after_send stop, with key or reconciler",
    "effect.before_again kill, in doubt",
    "commit's answer lost: apply",
    "checker: fence removed",
}


def _at(script: Callable[..., None], barrier: Barrier, action: str, nth: int = 1, **options: Any) -> Cell:
    broker = options.pop("broker", True)
    label = options.pop("label", "")
    name = f"{barrier.value} {action}{f' @{nth}' if nth > 1 else ''}{label}{'' if broker else ' without broker'}"
    run = partial(script, armed=Armed(barrier, action, nth), **options)
    return Cell(name, run, barrier, broker=broker, quick=name in QUICK)


def _barrier_cells() -> Iterable[Cell]:
    for action in _ACTIONS:
        yield from (_at(writer_at, barrier, action, nth) for barrier in _WRITER for nth in (1, 2))
        yield from (_at(relay_at, barrier, action, nth) for barrier in _RELAY for nth in (1, 3))
        yield from (_at(relay_in_recovery, barrier, action) for barrier in _RECOVERY)
        yield from (_at(relay_in_redrive, barrier, action, nth) for barrier in _REDRIVE for nth in (1, 3))
        yield from (_at(relay_in_schedules, barrier, action, nth) for barrier in _SCHEDULE for nth in (1, 4))
        yield from (_at(canceller_at, barrier, action) for barrier in _CANCEL)
        yield _at(rotation_at, _B.KEYS_AFTER_BEGIN, action)
        yield from (_at(rotation_at, barrier, action, nth) for barrier in _ROTATION for nth in (2, _LAST_BATCH))
        yield from (_at(purge_at, barrier, action, 2) for barrier in _PURGE)
        yield from (_at(purge_at, barrier, action, 2, by_hand=True, label=", by hand") for barrier in _PURGE)
        yield _at(hints_at, _B.RELAY_AFTER_HINTS, action)
        yield _at(expiry_at, _B.RELAY_AFTER_EXPIRY, action)
        yield _at(pauses_at, _B.RELAY_AFTER_PAUSES, action)
        yield from (_at(limits_at, barrier, action) for barrier in _LIMITS)
        yield from (_at(sets_at, barrier, action) for barrier in _SETS)
        yield from (_at(redrive_decided_at, barrier, action, label=", redrive") for barrier in _OPERATOR)
        yield from (_at(effect_resolved_at, barrier, action, label=", effect settled") for barrier in _OPERATOR)
        yield from (_at(consumer_at, barrier, action, kinds=(Stepped,)) for barrier in _STEP)
        yield from (_at(consumer_at, barrier, action, kinds=DOUBTED, label=", in doubt") for barrier in _IN_DOUBT)
        yield from (_consumer(barrier, action) for barrier in (*_WITH_HINTS, *_CONSUMER))
        yield from (_consumer(barrier, action, broker=False) for barrier in (*_WITHOUT_HINTS, *_CONSUMER))
        yield from (_consumer(barrier, action, 5) for barrier in _LATER)
        for barrier in _EFFECT:
            yield _at(consumer_at, barrier, action, kinds=LEDGERED, label=", with key or reconciler")
            yield _at(consumer_at, barrier, action, kinds=(Noticed,), label=", async", broker=False)
        for barrier in _ON_LOOP:
            yield _at(consumer_at, barrier, action, kinds=(Concurrent,), label=", async")
    for barrier in _AMID:
        yield _consumer(barrier, "stop", wake=Wake.AMID, label=", next attempt running")


def _consumer(barrier: Barrier, action: str, nth: int = 1, **options: Any) -> Cell:
    """Return a cell; what must be refused when it wakes is on a thread, where nothing cancels it first."""
    kinds = KINDS if action == "kill" or barrier not in WILL_WRITE else ON_THREADS
    return _at(consumer_at, barrier, action, nth, kinds=kinds, **options)


def _cell(name: str, run: Callable[..., None], **options: Any) -> Cell:
    return Cell(name, run, quick=name in QUICK, **options)


def _environment_cells() -> Iterable[Cell]:
    yield _cell("two relays, one killed", environment.two_relays)
    yield _cell("limit of one, consumers killed", one_slot)
    yield _cell("queue purged", environment.queue_purged)
    yield _cell("queue deleted", environment.queue_deleted)
    yield _cell("broker killed", environment.broker_killed, server="broker")
    yield _cell("broker lost everything", environment.broker_wiped, server="broker")
    yield _cell("postgres crashed", environment.postgres_crashed, server="postgres")
    for barrier in (_B.CONSUMER_AFTER_CLAIM, _B.CONSUMER_AFTER_APPLY):
        run = partial(environment.postgres_crashed_at, barrier=barrier)
        yield Cell(f"postgres crashed at {barrier.value}", run, barrier, server="postgres")
    yield _cell("backends terminated", environment.backends_terminated)
    for barrier in (_B.CONSUMER_AFTER_RECEIVE, _B.CONSUMER_AFTER_HANDLE, _B.CONSUMER_AFTER_APPLY):
        run = partial(environment.backends_terminated_at, barrier=barrier)
        yield Cell(f"backends terminated at {barrier.value}", run, barrier)
    yield _cell("commit's answer lost: apply", environment.completion_cut)
    yield _cell("commit's answer lost: job.transaction", environment.step_cut)
    yield _cell("commit's answer lost: effect", environment.effect_cut)
    yield _cell("commit's answer lost: batch", environment.batch_cut)
    yield _cell("commit's answer lost: claim", environment.claim_cut)
    yield _cell("commit's answer lost: writer", environment.submission_cut)
    yield _cell("recovery time", environment.recovery_time, alone=True)
    yield _cell("recovery time without broker", environment.recovery_time, alone=True, broker=False)
    yield _cell("re-hint time", environment.rehint_time, alone=True)


def _checker_cells() -> Iterable[Cell]:
    yield _cell("checker: token ignored", unfenced.token_ignored, guilty="but attempt 2 succeeded")
    yield _cell("checker: fence removed", unfenced.fence_removed, guilty="is there 2 times")


CELLS: tuple[Cell, ...] = (*_barrier_cells(), *_environment_cells(), *_checker_cells())
