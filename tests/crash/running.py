"""One cell from its start to its outcome."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from crash.broker import Queue
from crash.cells import Cell
from crash.evidence import Verdict, gather, judge
from crash.provider import Provider
from crash.stage import CellFailed, Stage
from outbox.migrations import upgrade_database
from outbox.servers import Postgres, RabbitMQ
from outbox.servers.instance import Instance
from support.database import Database, cloned
from support.servers import SCHEMA, Template


class Ground(Protocol):
    """The servers that cells stand on."""

    instance: Instance

    def template(self) -> Template:
        """Return a migrated database on a server that no cell crashes."""

    def amqp_url(self) -> str:
        """Return a broker that no cell crashes."""

    def provider_url(self) -> str:
        """Return the address of the provider, which no cell crashes either."""

    def victim(self, kind: str) -> Any:
        """Return a private server ("broker" or "postgres") for one cell at a time to crash."""


@dataclass
class Outcome:
    """What has become of a cell."""

    name: str
    seconds: float = 0.0
    lost: int = 0
    doubled: int = 0
    refused: int = 0
    problems: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    logs: str | None = None

    @property
    def ok(self) -> bool:
        """Tell whether everything held."""
        return not self.problems


def run_cell(cell: Cell, ground: Ground, *, parent: Path | None = None, keep: bool = False) -> Outcome:
    """Run a cell. Never raises for what goes wrong in it; its logs are kept then (or with `keep`), in a folder that
    is named.
    """
    outcome = Outcome(cell.name)
    folder = Path(tempfile.mkdtemp(prefix="crash-logs-", dir=parent))
    began = time.monotonic()
    try:
        with _stage(cell, ground, folder) as (stage, extra):
            _play(cell, stage, extra, outcome)
    except Exception as error:  # noqa: BLE001 - one cell's end must not be the matrix's
        outcome.problems.append("".join(traceback.format_exception(error)).strip())
    outcome.seconds = time.monotonic() - began
    if outcome.ok and not keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        outcome.logs = str(folder)
    return outcome


def _play(cell: Cell, stage: Stage, extra: list[Any], outcome: Outcome) -> None:
    try:
        cell.run(stage, *extra)
        stage.drained()
    except CellFailed as failure:
        outcome.problems.append(str(failure))
    stage.finish()
    verdict = judge(gather(stage))
    outcome.facts = stage.facts
    outcome.problems += stage.problems + _unproven(stage) + _miscounted(stage)
    if cell.guilty is None:
        outcome.refused = sum(process.refused() for process in stage.workshop.processes)
        outcome.lost, outcome.doubled = verdict.lost, verdict.doubled
        outcome.problems += verdict.problems
    else:
        outcome.problems += _not_caught(verdict, cell.guilty)


def _unproven(stage: Stage) -> list[str]:
    return [f"{process.name} never came to its barrier" for process in stage.armed if not process.mark.exists()]


def _miscounted(stage: Stage) -> list[str]:
    """Compare what consumers counted with what they logged, where they lived to say so."""
    closed = [process for process in stage.workshop.processes if process.counters()]
    return [
        f"{process.name} counted {process.counters()['stale_writes_refused']} stale writes, logged {process.refused()}"
        for process in closed
        if process.counters()["stale_writes_refused"] != process.refused()
    ]


def _not_caught(verdict: Verdict, guilty: str) -> list[str]:
    if any(guilty in problem for problem in verdict.problems):
        return []
    return [f"the checker did not see what was done: expected '{guilty}', found {verdict.problems}"]


@contextmanager
def _stage(cell: Cell, ground: Ground, folder: Path) -> Iterator[tuple[Stage, list[Any]]]:
    with ExitStack() as stack:
        extra: list[Any] = []
        amqp_url = ground.amqp_url() if cell.broker else None
        if cell.server == "broker":
            broker: RabbitMQ = ground.victim("broker")
            amqp_url = broker.url
            extra.append(broker)
        if cell.server == "postgres":
            server: Postgres = ground.victim("postgres")
            database = stack.enter_context(_own_database(server))
            extra.append(server)
        else:
            database = stack.enter_context(cloned(ground.template()))
        prefix = f"crash-{uuid.uuid4().hex[:12]}"
        provider = Provider(f"{ground.provider_url()}/{prefix}")
        stage = Stage(ground.instance, folder, database, provider, amqp_url=amqp_url, prefix=prefix)
        if amqp_url is not None:
            stack.callback(Queue(amqp_url, prefix).delete)
        stack.callback(stage.close)
        yield stage, extra


@contextmanager
def _own_database(server: Postgres) -> Iterator[Database]:
    name = f"crash_{uuid.uuid4().hex[:12]}"
    database = Database(server.create_database(name))
    upgrade_database(database.url, SCHEMA)
    try:
        yield database
    finally:
        database.close()
        server.drop_database(name)
