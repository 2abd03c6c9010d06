"""How fast a service can submit, and what a NOTIFY inside its transactions would cost it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count

import sqlalchemy as sa

from measure.system import System
from measure.workload import Noop
from outbox import enqueue, enqueue_many

_BUSINESS = sa.text("INSERT INTO business (id, note) VALUES (:id, 'a row of the service')")
_NOTIFY = sa.text("SELECT pg_notify('outbox', 'work')")


def one_per_transaction(system: System, *, seconds: float) -> float:
    """Return transactions per second, each with one business row and one job, from one connection."""
    system.reset()
    numbers = count()
    with system.engine().connect() as connection:
        return _rate(lambda: _submit_one(connection, next(numbers), notify=False), seconds)


def batches(system: System, *, seconds: float, size: int = 1000) -> float:
    """Return jobs per second, in transactions of `size` business rows and jobs."""
    system.reset()
    starts = count(step=size)

    def submit() -> None:
        start = next(starts)
        with connection.begin():
            connection.execute(_BUSINESS, [{"id": number} for number in range(start, start + size)])
            enqueue_many(connection, (Noop(number=number) for number in range(start, start + size)))

    with system.engine().connect() as connection:
        return _rate(submit, seconds) * size


def concurrent(system: System, *, seconds: float, writers: int, notify: bool) -> float:
    """Return transactions per second of several writers at once, with or without a NOTIFY in each transaction."""
    system.reset()
    numbers, rates = count(), list[float]()

    def write() -> None:
        with system.engine().connect() as connection:
            rates.append(_rate(lambda: _submit_one(connection, next(numbers), notify=notify), seconds))

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def _submit_one(connection: sa.Connection, number: int, *, notify: bool) -> None:
    with connection.begin():
        connection.execute(_BUSINESS, {"id": number})
        enqueue(connection, Noop(number=number))
        if notify:
            connection.execute(_NOTIFY)


def _rate(action: Callable[[], None], seconds: float) -> float:
    for _ in range(20):
        action()
    done, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        action()
        done += 1
    return done / (time.monotonic() - start)
