"""A relay alone: from the owed row to the broker's confirm, while nobody consumes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

from measure.arena import Seat
from measure.broker import channel
from measure.contender import NO_EXTRA
from measure.evidence import Wrong
from measure.waiting import wait_until

# So that neither the runway nor the window is what is measured.
WIDE = {"OUTBOX_RELAY_RUNWAY": "1000000"}
_STILL_S = 0.5


def relayed(seat: Seat, *, jobs: int, extra: Mapping[str, str] = NO_EXTRA, timeout_s: float = 90) -> float:
    """Return hints per second between the first tenth's release and the last confirm.

    For a contender with a `hint_queue` the end is when the broker's count has taken its last step: a message is
    counted in a quorum queue once it is committed there, which is when it is confirmed. Afterwards the messages are
    read, and `Wrong` is raised unless they name each job once.
    """
    seat.fresh()
    seat.contender.fill(0, jobs)
    seat.settle()
    queue = seat.contender.hint_queue
    try:
        seat.contender.start(0, extra=extra)
        wait_until(lambda: seat.contender.unrelayed() <= jobs * 0.9, 60, 0.01)
        first, start = seat.contender.unrelayed(), time.monotonic()
        end = _owed_nothing(seat, timeout_s) if queue is None else _confirmed(seat, queue, timeout_s)
    finally:
        seat.contender.stop()
    if queue is not None:
        _each_once(seat, queue, jobs)
    return first / (end - start)


def _owed_nothing(seat: Seat, timeout_s: float) -> float:
    wait_until(lambda: seat.contender.unrelayed() == 0, timeout_s, 0.05)
    return time.monotonic()


def _confirmed(seat: Seat, queue: str, timeout_s: float) -> float:
    """Watch the broker's count until it stands still with nothing owed; return when it took its last step."""
    deadline = time.monotonic() + timeout_s
    with channel(seat.servers.amqp_url) as broker:
        depth, stepped = -1, time.monotonic()
        while time.monotonic() < deadline:
            asked = time.monotonic()
            found = broker.queue_declare(queue, passive=True).method.message_count
            if found != depth:
                depth, stepped = found, asked
            elif asked - stepped > _STILL_S and seat.contender.unrelayed() == 0:
                return stepped
            time.sleep(0.01)
    raise TimeoutError(f"not confirmed after {timeout_s:g} s")


def _each_once(seat: Seat, queue: str, jobs: int) -> None:
    """Read the queue to its end."""
    ids: list[UUID] = []
    with channel(seat.servers.amqp_url) as broker:
        broker.basic_qos(prefetch_count=1000)
        tag = 0
        for method, _properties, body in broker.consume(queue, inactivity_timeout=2):
            if method is None or body is None:
                break
            ids += map(UUID, json.loads(body)["jobs"])
            tag = method.delivery_tag
            if tag % 500 == 0:
                broker.basic_ack(tag, multiple=True)
        if tag:
            broker.basic_ack(tag, multiple=True)
        with suppress(Exception):
            broker.cancel()
    if len(ids) != jobs or len(set(ids)) != jobs:
        raise Wrong(f"{jobs} hints were owed, {len(ids)} arrived, of which {len(set(ids))} different ones")
