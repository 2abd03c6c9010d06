"""`make crash`: runs the matrix, tells of each cell as it ends, and closes with one line.

The exit status is 0 only if every cell held, nothing was lost or doubled, and (in a whole run) the fence was seen to
refuse.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, Self

from crash.cells import CELLS, Cell
from crash.processes import start_provider
from crash.running import Outcome, run_cell
from outbox.servers import NoServer, postgres, rabbitmq
from outbox.servers.instance import Instance
from support.servers import RunServers, Template

_SHOWN = 8  # problems of one cell on the screen; all stand in the report
# A cell mostly waits: for leases to end, and for processes to start on one core each.
_JOBS = 2 * (os.cpu_count() or 1)
_DURABLE = {"max_connections": "100"}


class PrivateGround:
    """Servers of this run alone: one of each for all cells, and one of each to be crashed, started when first asked
    for.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._victims: dict[str, Any] = {}
        self._provider = ""
        for name in ("OUTBOX_DATABASE_URL", "OUTBOX_AMQP_URL"):
            os.environ.pop(name, None)
        self._servers = RunServers()
        self._stack.callback(self._servers.close)
        self.instance = Instance("crash", None)
        self._stack.callback(self.instance.close)

    def __enter__(self) -> Self:
        """Return the ground."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all that was started."""
        self._stack.close()

    def template(self) -> Template:
        """Return the migrated database."""
        template: Template = self._servers.get("template")
        return template

    def amqp_url(self) -> str:
        """Return the broker that lives."""
        url: str = self._servers.get("rabbitmq")
        return url

    def provider_url(self) -> str:
        """Return the provider's address."""
        with self._lock:
            self._provider = self._provider or start_provider(self.instance)
            return self._provider

    def victim(self, kind: str) -> Any:
        """Return a server to crash; it runs when it is handed out."""
        with self._lock:
            if kind not in self._victims:
                server = rabbitmq(private=True) if kind == "broker" else postgres(private=True, settings=_DURABLE)
                self._victims[kind] = self._stack.enter_context(server)
            self._victims[kind].start()
            return self._victims[kind]


def main(arguments: Sequence[str]) -> int:
    """Run the cells that are asked for and return the exit status."""
    options = _options(arguments)
    cells = [cell for cell in CELLS if _wanted(cell, options)]
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    if not cells:
        print(f"no cell is called like {options.cells}", file=sys.stderr)
        return 2
    began = time.monotonic()
    try:
        outcomes = _run_privately(cells, options)
    except NoServer as error:
        print(f"The matrix can't run: {error}", file=sys.stderr)
        return 1
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1), encoding="utf-8")
    return close(outcomes, time.monotonic() - began, whole=len(cells) == len(CELLS))


def _run_privately(cells: Sequence[Cell], options: argparse.Namespace) -> list[Outcome]:
    with PrivateGround() as ground:
        print("starting servers", flush=True)
        ground.template()
        ground.amqp_url()
        ground.provider_url()
        return _run(cells, partial(run_cell, ground=ground, keep=options.keep), options.jobs)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make crash CRASH_ARGS=...", description=__doc__)
    parser.add_argument("--cells", metavar="PATTERN", help="only the cells whose name holds this text or fits it (*?)")
    parser.add_argument("--quick", action="store_true", help="only the cells of the usual test run")
    parser.add_argument("--list", action="store_true", help="name the cells and run none")
    parser.add_argument(
        "--jobs", type=int, default=_JOBS, metavar="N", help=f"cells that run at once (default {_JOBS})"
    )
    parser.add_argument("--keep", action="store_true", help="keep the logs of cells that held, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a report")
    return parser.parse_args(arguments)


def _wanted(cell: Cell, options: argparse.Namespace) -> bool:
    pattern = options.cells
    named = pattern is None or pattern in cell.name or fnmatch(cell.name, pattern)
    return named and (cell.quick or not options.quick)


def _run(cells: Sequence[Cell], run: Callable[[Cell], Outcome], jobs: int) -> list[Outcome]:
    """Run side by side what can share the machine, then one by one what measures."""
    outcomes: list[Outcome] = []
    lock = threading.Lock()
    ending = threading.Event()

    def go(some: Sequence[Cell]) -> None:
        for cell in some:
            if ending.is_set():
                return
            outcome = run(cell)
            with lock:
                outcomes.append(_tell(outcome, len(outcomes) + 1, len(cells)))

    pool = ThreadPoolExecutor(max_workers=max(1, jobs))
    try:
        for future in as_completed([pool.submit(go, lane) for lane in _lanes(cells)]):
            future.result()
    finally:
        # After Ctrl-C the cells in progress come to their end, and no other begins.
        ending.set()
        pool.shutdown(cancel_futures=True)
    ending.clear()
    go([cell for cell in cells if cell.alone])
    return outcomes


def _lanes(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return what may run side by side; cells that crash the same server take turns, and begin first, as they take
    longest.
    """
    shared = [cell for cell in cells if not cell.alone]
    servers = sorted({cell.server for cell in shared if cell.server is not None})
    crashing = [[cell for cell in shared if cell.server == server] for server in servers]
    return [*crashing, *([cell] for cell in shared if cell.server is None)]


def _tell(outcome: Outcome, number: int, total: int) -> Outcome:
    mark = "ok  " if outcome.ok else "FAIL"
    facts = {"refused": outcome.refused} if outcome.refused else {}
    told = ", ".join(f"{name} {value}" for name, value in (facts | outcome.facts).items())
    print(f"{number:3}/{total} {mark} {outcome.seconds:5.1f} s  {outcome.name:58} {told}".rstrip(), flush=True)
    for problem in _some(outcome.problems):
        print("      " + problem.replace("\n", "\n      "), flush=True)
    if outcome.logs is not None:
        print(f"      logs: {outcome.logs}", flush=True)
    return outcome


def _some(problems: Sequence[str]) -> list[str]:
    shown = list(problems[:_SHOWN])
    return shown if len(problems) <= _SHOWN else [*shown, f"and {len(problems) - _SHOWN} more"]


def close(outcomes: Sequence[Outcome], seconds: float, *, whole: bool) -> int:
    """Print the closing line and return the exit status. In a whole run the fence must have been seen at work."""
    lost = sum(outcome.lost for outcome in outcomes)
    doubled = sum(outcome.doubled for outcome in outcomes)
    refused = sum(outcome.refused for outcome in outcomes)
    failed = [outcome.name for outcome in outcomes if not outcome.ok]
    print(f"\n{seconds:.0f} s; failed: {', '.join(failed) or 'none'}")
    print(f"cells {len(outcomes)}, lost {lost}, doubled {doubled}, stale writes refused {refused}")
    held = not (failed or lost or doubled)
    return 0 if held and (refused > 0 or not whole) else 1
