"""What every contender offers to the harness, and the handling of processes that they share.

A contender is one module of `bench/peers` (or `bench/contenders`) with one class that is named `CONTENDER` there:

    class PgQueuer(Base):
        name = "pgqueuer"
        ...
    CONTENDER = PgQueuer

The harness makes the database and the table `business (id bigint primary key, note text not null)`, sets BENCH_STAMPS
for the processes that `spawn` starts, and removes database, queues' broker and folder afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from measure.stamps import count_stamps

BENCH = Path(__file__).resolve().parents[1]
NO_EXTRA: Mapping[str, str] = MappingProxyType({})
ABILITIES = frozenset({"drain", "enqueue_one", "enqueue_many", "latency", "relay", "horizon"})


@dataclass(frozen=True)
class Servers:
    """Where a contender works.

    Attributes:
        database_url: a fresh, empty database, as a libpq URL.
        amqp_url: a broker.
        prefix: what its queues' names begin with, so that contenders share a broker and nothing else.
        folder: scratch, logs and stamps.
    """

    database_url: str
    amqp_url: str
    prefix: str
    folder: Path


class Submitter(AbstractContextManager["Submitter"], Protocol):
    """One writer of the service, with its own connection; entered once, used from one thread."""

    def one(self, number: int) -> None:
        """Commit one transaction with business row `number` and job `number`."""

    def many(self, numbers: Sequence[int]) -> None:
        """Commit one transaction with a business row and a job for each number."""


class Contender(Protocol):
    """One system under measurement. Errors in a contender are reported in a line and never end the run."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]  # distributions whose versions are printed
    settings: ClassVar[str]  # its best documented settings, in a line
    can: ClassVar[frozenset[str]]  # of ABILITIES

    def __init__(self, servers: Servers) -> None: ...

    def prepare(self) -> None:
        """Make schema and queues."""

    def reset(self) -> None:
        """Forget all jobs and empty the queues. Stamps and `business` are the harness's."""

    def fill(self, start: int, count: int) -> None:
        """Commit a backlog of no-op jobs numbered `start` to `start + count - 1`."""

    def start(self, workers: int, *, extra: Mapping[str, str] = NO_EXTRA) -> list[subprocess.Popen[bytes]]:
        """Start worker processes, and the relay if there is one; `start(0)`: the relay alone."""

    def stop(self) -> None:
        """End what was started: in an orderly way, then by kill."""

    def left(self) -> int:
        """Return how many jobs are not completed in the store."""

    def unrelayed(self) -> int:
        """Return how many jobs have no confirmed message yet (for those that can "relay")."""

    @property
    def hint_queue(self) -> str | None:
        """The broker's queue of hints in this project's format, whose depth and messages tell what was relayed."""

    def submitter(self) -> Submitter:
        """Return a writer that uses the contender's best documented way."""

    def python(self, *arguments: str, extra: Mapping[str, str] = NO_EXTRA, **kwargs: Any) -> subprocess.Popen[bytes]:
        """Start this interpreter with arguments; `Base` does it."""


class Base:
    """The part of a contender that is about processes and stamps."""

    packages: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[str] = "defaults"
    grace_s: ClassVar[float] = 15.0  # between the polite signal and the kill
    polite: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.processes: list[subprocess.Popen[bytes]] = []
        self.filled = 0  # for contenders without a store: what `left` is counted from; set it in `fill` and `reset`
        self._started = 0

    @property
    def stamps(self) -> Path:
        """The folder in which the workers' stamps arrive."""
        return self.servers.folder / "stamps"

    def spawn(
        self,
        command: Sequence[str],
        *,
        extra: Mapping[str, str] = NO_EXTRA,
        label: str = "worker",
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process in a process group of its own, with `bench` importable, its output in a log in the folder.

        `stdin` and `stdout` may be `subprocess.PIPE`.
        """
        self._started += 1
        self.stamps.mkdir(parents=True, exist_ok=True)
        log = self.servers.folder / f"{type(self).__name__.lower()}-{self._started}-{label}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                list(command),
                env=self.environment() | dict(extra),
                cwd=self.servers.folder,
                stdin=stdin,
                stdout=output if stdout is None else stdout,
                stderr=output,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def python(self, *arguments: str, extra: Mapping[str, str] = NO_EXTRA, **kwargs: Any) -> subprocess.Popen[bytes]:
        """Start this interpreter with arguments."""
        return self.spawn([sys.executable, *arguments], extra=extra, **kwargs)

    def environment(self) -> dict[str, str]:
        """Return the environment of the processes; extend it for more."""
        paths = [str(BENCH), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "BENCH_STAMPS": str(self.stamps),
            "BENCH_DATABASE_URL": self.servers.database_url,
            "BENCH_AMQP_URL": self.servers.amqp_url,
            "BENCH_PREFIX": self.servers.prefix,
        }

    def stop(self) -> None:
        """Ask all processes to end, wait, then kill what is left with its children."""
        processes, self.processes = self.processes, []
        try:
            for process in processes:
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        process.send_signal(self.polite)
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(self.grace_s)
        finally:
            for process in processes:
                _kill_group(process)

    def left_by_stamps(self) -> int:
        """Return how many of the `filled` jobs have not stamped their start; for contenders without a store."""
        return self.filled - count_stamps(self.stamps)

    @property
    def hint_queue(self) -> str | None:
        """None: nobody but this project has one."""
        return None

    def unrelayed(self) -> int:
        """Say that this contender is no relay."""
        raise NotImplementedError(f"{type(self).__name__} has no relay")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of the group that `spawn` made."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)


def chunks(start: int, count: int, size: int = 10_000) -> Iterable[range]:
    """Split the numbers of a backlog, so that no statement grows without bound."""
    for first in range(start, start + count, size):
        yield range(first, min(first + size, start + count))
