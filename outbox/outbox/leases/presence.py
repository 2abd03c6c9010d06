"""Who works here: each relay and consumer tells every few seconds that it lives and what it can run.

For people, and for the question why a job doesn't run. Nothing that moves a job rests on it, so a database that can't
take it (an older one, a role without the right) costs a line in the log and no more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import psycopg

from outbox.database.link import Link
from outbox.database.trouble import Fault, Trouble, fault_of
from outbox.leases.leasing import Ability, Worker

__all__ = ["EVERY_S", "LIVE_S", "QUIET_S", "Presence", "ProcessView", "Role", "list_processes"]

EVERY_S = 10.0
# Whoever has said nothing for so long is taken to be gone; a few signs may be late or lost.
LIVE_S = 60.0
QUIET_S = 25.0
"""After so many seconds without a sign two are missing: who looks on is told, while `LIVE_S` still decides."""
# Long enough to be found by somebody who asks next morning what ran here.
_FORGET_S = 86_400.0
# What only a person can mend is not asked for every ten seconds.
_REFUSED_PAUSE_S = 300.0
_LOOP = "presence"


class Role(StrEnum):
    """What a process does here."""

    RELAY = "relay"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process as it last announced itself.

    Attributes:
        live: it was seen within the last minute.
        quiet_s: how many seconds ago it was seen, by the database's clock; it gives a sign every ten. Of one that was
            killed nothing else tells within that minute.
        keys: the ids of the keys that it has; None where it says nothing of them: a relay, or a consumer of an older
            release.
    """

    name: str
    role: Role
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    runs: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    live: bool
    quiet_s: float = field(compare=False)
    keys: tuple[str, ...] | None = None


class Presence:
    """Announces one process, on a link of the thread that calls. No error of the database leaves it.

    `ended_per_s` is asked each time how many jobs of each queue the process ends a second, `key_ids` which keys it has
    (None: nothing is said of them), and `runways` how long a relay's are, by queue (see `outbox.reading.runways`).
    """

    def __init__(
        self,
        role: Role,
        worker: Worker,
        *,
        queues: Sequence[str] = (),
        abilities: Sequence[Ability] = (),
        ended_per_s: Callable[[], Mapping[str, float]] = dict,
        key_ids: Callable[[], Sequence[str] | None] = lambda: None,
        runways: Callable[[], Mapping[str, Mapping[str, object]]] = dict,
    ) -> None:
        self._ended_per_s = ended_per_s
        self._key_ids = key_ids
        self._runways = runways
        self._parameters: dict[str, Any] = {
            "name": worker.name,
            "role": role.value,
            "host": worker.host,
            "pid": os.getpid(),
            "version": worker.version,
            "queues": list(queues),
            "kinds": [ability.kind for ability in abilities],
            "versions": [ability.version for ability in abilities],
            "forget_s": _FORGET_S,
        }
        self._trouble = Trouble(_LOOP, EVERY_S, logger=f"outbox.{role.value}")
        self._started = time.monotonic()
        self._next_at = 0.0
        self._told = False

    def tell(self, link: Link) -> None:
        """Announce the process if it is time to."""
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + EVERY_S
        key_ids = self._key_ids()
        try:
            link.run(
                "announce",
                **self._parameters,
                ended_per_s=json.dumps(dict(self._ended_per_s())),
                key_ids=None if key_ids is None else list(key_ids),
                runways=json.dumps(dict(self._runways())),
                uptime_s=now - self._started,
            )
            self._trouble.over()
            self._told = True
        except psycopg.Error as error:
            self._trouble.report(error)
            self._told = False
            if fault_of(error) in {Fault.TABLES, Fault.RIGHTS}:
                self._next_at = now + _REFUSED_PAUSE_S

    def leave(self, link: Link) -> None:
        """Take the process off the list. Not tried where the last announcement failed: an end waits for nobody."""
        if not self._told:
            return
        try:
            link.run("depart", name=self._parameters["name"])
        except psycopg.Error as error:
            self._trouble.report(error)


def list_processes(link: Link) -> list[ProcessView]:
    """Return every process that has announced itself within the last day and not left."""
    return [
        ProcessView(
            row.name,
            Role(row.role),
            row.host,
            row.pid,
            row.version,
            tuple(row.works_for),
            tuple(f"{kind} {version}" for kind, version in zip(row.kinds, row.versions, strict=True)),
            row.started_at,
            row.seen_at,
            row.live,
            row.quiet_s,
            None if row.key_ids is None else tuple(row.key_ids),
        )
        for row in link.run("list_processes", live_s=LIVE_S)
    ]
