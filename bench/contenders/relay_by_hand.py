"""The relay written by hand, for speed alone: release by a phase update, publish with asynchronous confirms.

Same tables, same queue, same message. One queue, no fairness, no limits, no recovery, nothing handed back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import pika
import psycopg
from measure.contender import NO_EXTRA
from measure.targets import BY_HAND
from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel

from contenders.ours import Outbox
from outbox_schemas.topology import queue_arguments

_BATCH, _IDS, _WINDOW = 2500, 25, 1000
_RELEASE = """
UPDATE outbox.outbox AS o SET phase = 'released', released_at = now(), release_count = o.release_count + 1,
  due_at = now() + interval '10 seconds'
WHERE o.job_id = ANY (ARRAY(SELECT p.job_id FROM outbox.outbox AS p WHERE p.phase = 'owed' AND p.queue = %s
  AND p.order_key <= now() AND p.due_at <= now() ORDER BY p.order_key LIMIT %s FOR UPDATE SKIP LOCKED))
RETURNING o.job_id
"""


class ByHand(Outbox):
    """The same schema and writer with another relay."""

    name: ClassVar[str] = BY_HAND
    packages: ClassVar[tuple[str, ...]] = ("psycopg", "pika")
    settings: ClassVar[str] = f"asynchronous commit, {_BATCH} a release, {_IDS} ids a message, window {_WINDOW}"
    can: ClassVar[frozenset[str]] = frozenset({"relay"})

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start this module as the relay."""
        return [self.python("-m", "contenders.relay_by_hand", self.hint_queue, extra=extra, label="relay")]


class _Relay:
    """Everything on pika's thread: a release whenever half of the window is free."""

    def __init__(self, queue: str, database: psycopg.Connection[Any]) -> None:
        self._queue, self._database = queue, database
        self._sent = self._confirmed = 0
        self._properties = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        self.connection = SelectConnection(pika.URLParameters(os.environ["BENCH_AMQP_URL"]), self._on_open)

    def _on_open(self, connection: SelectConnection) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Channel) -> None:
        self._channel = channel
        arguments = queue_arguments("quorum")
        channel.queue_declare(self._queue, durable=True, arguments=arguments, callback=lambda _: self._confirming())

    def _confirming(self) -> None:
        self._channel.confirm_delivery(self._on_confirm, callback=lambda _: self._work())

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        self._confirmed = max(self._confirmed, method.delivery_tag) if method.multiple else self._confirmed + 1

    def _work(self) -> None:
        pause_s = 0.0005
        if self._sent - self._confirmed <= _WINDOW // 2:
            rows = self._database.execute(_RELEASE, (self._queue.rpartition(".")[2], _BATCH), binary=True).fetchall()
            for start in range(0, len(rows), _IDS):
                ids = '","'.join(str(row[0]) for row in rows[start : start + _IDS])
                self._channel.basic_publish("", self._queue, f'{{"v":1,"jobs":["{ids}"]}}'.encode(), self._properties)
                self._sent += 1
            pause_s = 0.0 if rows else 0.005
        self.connection.ioloop.call_later(pause_s, self._work)


def main() -> None:
    """Relay until the process is ended."""
    options = "-c synchronous_commit=off"
    with psycopg.connect(os.environ["BENCH_DATABASE_URL"], autocommit=True, options=options) as database:
        _Relay(sys.argv[1], database).connection.ioloop.start()


CONTENDER = ByHand

if __name__ == "__main__":
    main()
