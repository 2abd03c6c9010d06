"""One cell's own world: a fresh database, names of its own at the broker, a folder, processes, and bounded waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import sqlalchemy as sa

from crash.processes import TESTS, Armed, Process, Workshop
from crash.provider import Provider
from crash.workload import EFFECTS_FILE, KINDS, LEASE_VARIABLE, PROVIDER_URL, TABLES, submit, submit_set
from outbox import redrive
from outbox.redrives.redriving import preview_redrive
from outbox.servers.instance import Instance, tail
from outbox.settings.urls import sqlalchemy_engine
from support.database import Database

LEASE_S = 2.0
# The tenants whose jobs are meant to be cancelled, and to fail by their deadline.
DOOMED = "doomed"
EXPIRED = "expired"
START_S = 60.0
DRAIN_S = 90.0
STEP_S = 60.0
END_S = 60.0
# More than any cell takes, however slow the machine: what hangs must end as a failure of its cell.
CELL_S = 240.0

_SETTINGS = {
    "OUTBOX_CONSUMER_CONCURRENCY": "4",
    "OUTBOX_CONSUMER_BROKERLESS_AFTER_S": "1",
    "OUTBOX_CONSUMER_GRACE_S": "10",
    "OUTBOX_RELAY_GRACE_S": "6",
    "OUTBOX_RELAY_REHINT_AFTER_S": "2",
    "OUTBOX_RELAY_REHINT_BUSY_AFTER_S": "4",
    "OUTBOX_RELAY_CONNECT_BACKOFF_MAX_S": "1",
}
_WHO = ("--by", "crash", "--reason", "test")

_FROZEN = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' "
    "AND application_name LIKE 'outbox-consumer/%' AND state_change < clock_timestamp() - interval '1 second'"
)


class CellFailed(Exception):  # noqa: N818 - the name says what it means
    """Something that had to happen in a cell did not happen in time."""


class Stage:
    """What a cell's script acts on.

    Attributes:
        database: the rows that decide.
        amqp_url: the broker that processes started from now on use; None for none.
        database_url: the same for their database; a proxy may stand in.
        facts: what the script has measured or seen, for the report.
        armed: the processes that were given a barrier.
        provider: the other side of the jobs' effects.
        problems: what went wrong when processes were asked to end.
    """

    def __init__(
        self,
        instance: Instance,
        folder: Path,
        database: Database,
        provider: Provider,
        *,
        amqp_url: str | None,
        prefix: str,
    ) -> None:
        self.database = database
        self.database_url = database.url
        self.amqp_url = amqp_url
        self.prefix = prefix
        self.folder = folder
        self.effects_file = folder / "external-effects"
        self.intents_file = folder / "intents"
        self.provider = provider
        self.workshop = Workshop(instance, folder)
        self.facts: dict[str, Any] = {}
        self.armed: list[Process] = []
        self.problems: list[str] = []
        self._number = 0
        self._deadline = time.monotonic() + CELL_S
        for file in (self.effects_file, self.intents_file):
            file.touch()
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(TABLES)

    def relay(self, armed: Armed | None = None, **env: str) -> Process:
        """Start a relay."""
        return self._start("relay", ["relay", "--json"], armed, env)

    def consumer(self, armed: Armed | None = None, **env: str) -> Process:
        """Start a consumer of the workload."""
        return self._start("consumer", ["consume", "--json", "crash.workload", "crash.doubts"], armed, env)

    def writer(self, batches: int, size: int, armed: Armed | None = None) -> Process:
        """Start a process that commits orders in batches."""
        arguments = ("crash.writer", str(batches), str(size), str(self.intents_file))
        process = self.workshop.module("writer", *arguments, env=self._environment(), armed=armed)
        return self._remember(process, armed)

    def canceller(self, tenant: str, expected: int, armed: Armed | None = None) -> Process:
        """Start a process that cancels all jobs of a tenant."""
        arguments = ["jobs", "cancel", "--tenant", tenant, "--expect", str(expected), *_WHO]
        return self._start("canceller", arguments, armed, {})

    def decider(self, name: str, arguments: list[str], armed: Armed | None = None) -> Process:
        """Start a command that says who decides and why; it may be refused."""
        process = self._start(name, [*arguments, *_WHO], armed, {})
        process.may_be_refused = True
        return process

    def rotator(self, armed: Armed | None = None, *, batch: int, keys: str) -> Process:
        """Start a process that rotates keys."""
        arguments = ["keys", "rotate", "--batch", str(batch), *_WHO]
        return self._start("rotator", arguments, armed, {"OUTBOX_KEYS_FILE": keys})

    def purger(self, armed: Armed | None = None, **env: str) -> Process:
        """Start a process that purges by hand what has succeeded a day ago."""
        arguments = ["purge", "--older-than", "1d", "--state", "succeeded", "--kind", "crash.old", *_WHO]
        return self._start("purger", arguments, armed, env)

    def submit(self, count: int, kinds: Sequence[Any] = KINDS, **options: Any) -> list[str]:
        """Commit so many orders with their jobs, and return the jobs' ids. `options` are those of the workload."""
        with self._transaction() as connection:
            return [str(ref.id) for ref in submit(connection, self._numbers(count), kinds, **options)]

    def submit_set(self, parts: int) -> None:
        """Commit so many orders with their jobs, and one whose job waits for all of these."""
        with self._transaction() as connection:
            submit_set(connection, self._numbers(parts + 1))

    def dead(self, count: int) -> list[UUID]:
        """Commit so many orders whose jobs have failed, and return the jobs' ids."""
        ids = [UUID(job_id) for job_id in self.submit(count)]
        fail = (
            "UPDATE {s}.jobs SET state = 'failed', finished_at = {s}.clock(), first_error_class = 'deadline', "
            "first_error_code = 'x', last_error_class = 'deadline', last_error_code = 'x' WHERE state = 'ready'"
        )
        self.database.rows(fail)
        self.database.rows("DELETE FROM {s}.outbox")
        return ids

    def redrive(self, ids: Sequence[UUID], rate: float) -> None:
        """Decide to redrive jobs; relays put them back."""
        with self._transaction() as connection:
            redrive(connection, ids, by="crash", reason="a cell", rate=rate)

    def preview(self, ids: Sequence[UUID]) -> str:
        """Return the token of a redrive's preview."""
        with self._transaction() as connection:
            return preview_redrive(connection, ids).token

    def redriven(self, count: int) -> None:
        """Wait until so many jobs were put back, each once, and have succeeded."""
        self.until(
            lambda: self.database.count("jobs WHERE state = 'succeeded'") == count, "what was redriven ran", DRAIN_S
        )
        if self.database.count("audit WHERE action = 'job.redrive'") != count:
            raise CellFailed("a job was put back twice, or never")

    def until(self, condition: Callable[[], Any], what: str, within_s: float = STEP_S) -> Any:
        """Wait for a condition and return its value; `CellFailed` names what did not happen."""
        deadline = min(time.monotonic() + within_s, self._deadline)
        while not (value := condition()):
            self._all_stand()
            if time.monotonic() > deadline:
                raise CellFailed(f"not within {within_s:g} s: {what}")
            time.sleep(0.03)
        return value

    def held(self, process: Process) -> None:
        """Wait until an armed process has met its barrier."""
        self.until(process.held, f"{process.name} met its barrier", START_S)

    def drained(self) -> None:
        """Wait until nothing is owed to any job."""
        self.until(lambda: self.database.count("outbox") == 0, "everything drained", DRAIN_S)

    def drained_but_held(self) -> None:
        """Wait until nothing is owed but what a frozen process holds in open transactions, of one job each."""
        self.until(
            lambda: self.database.count("outbox") <= self.database.count(_FROZEN),
            "everything drained but what is held",
            DRAIN_S,
        )

    def running(self, count: int = 1) -> None:
        """Wait until so many jobs run at once."""
        self.until(
            lambda: self.database.count("jobs WHERE state = 'running'") >= count, f"{count} jobs run at once", START_S
        )

    def leases_passed(self) -> None:
        """Wait until every lease has been over for a second, by the database's clock."""
        late = "outbox WHERE lease_expires_at > {s}.clock() - interval '1 second'"
        self.until(lambda: self.database.count(late) == 0, "the leases' ends passed")

    def finish(self) -> None:
        """Ask every process to end, and keep what went wrong with that. May be called again."""
        with suppress(CellFailed):
            # Before it listens for signals, a process has no way to end in order.
            self.until(lambda: all(process.stands() for process in self.workshop.processes), "all have started")
        self.problems += self.workshop.terminate(END_S)

    def close(self) -> None:
        """End every process at once, and what looks at the database."""
        self.workshop.close()
        self.database.close()

    def reopened(self) -> None:
        """Look at the database over new connections: its server was down."""
        self.database.close()
        self.database = Database(self.database.url)

    def _all_stand(self) -> None:
        for process in self.workshop.processes:
            if process.code is not None and not process.killed and process.code not in process.good_codes:
                raise CellFailed(f"{process.name} fell over with {process.code}: {tail(process.log)}")

    def _start(self, name: str, arguments: list[str], armed: Armed | None, env: dict[str, str]) -> Process:
        process = self.workshop.outbox(name, *arguments, env=self._environment() | env, armed=armed)
        return self._remember(process, armed)

    def _numbers(self, count: int) -> range:
        first, self._number = self._number, self._number + count
        return range(first, self._number)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        engine = sqlalchemy_engine(self.database.url)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def _remember(self, process: Process, armed: Armed | None) -> Process:
        if armed is not None:
            self.armed.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OUTBOX_", "CRASH_"))}
        return inherited | {
            **_SETTINGS,
            "OUTBOX_DATABASE_URL": self.database_url,
            "OUTBOX_AMQP_URL": self.amqp_url or "",
            "OUTBOX_AMQP_PREFIX": self.prefix,
            EFFECTS_FILE: str(self.effects_file),
            PROVIDER_URL: self.provider.url,
            LEASE_VARIABLE: str(LEASE_S),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
        }
