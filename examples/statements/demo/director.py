"""Waiting while the show goes on: each wait is bounded, watches the processes and keeps the screen alive."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from statements.demo.load import Load
from statements.demo.observe import Observer, Snapshot
from statements.demo.plan import DemoError, Plan
from statements.demo.screen import Screen
from statements.demo.stage import Process, Stage

_T = TypeVar("_T")
_TICK_S = 0.1


class Director:
    """Holds what every scene needs: the stage, the eyes on the database, the load, the screen."""

    def __init__(
        self, stage: Stage, observer: Observer, load: Load, screen: Screen, check: Callable[[], None] = lambda: None
    ) -> None:
        self.stage = stage
        self.observer = observer
        self.load = load
        self.screen = screen
        self._check = check

    @property
    def plan(self) -> Plan:
        """Sizes and bounds of this run."""
        return self.stage.plan

    def say(self, text: str) -> None:
        """Tell the audience."""
        self.screen.say(text)

    def tick(self) -> Snapshot:
        """Look at everything once.

        Raises DemoError when a process has ended by itself or a request was refused, and what an interrupt asked for.
        """
        self._check()
        ended = self.stage.failed()
        if ended is not None:
            raise DemoError(f"{ended.name} ended by itself with exit status {ended.popen.returncode}")
        self.load.done()
        snapshot = self.observer.snapshot()
        running = ", ".join(process.name for process in self.stage.processes if process.running)
        self.screen.update(len(self.load.accepted), self.load.total, snapshot, self.plan.statements, running)
        return snapshot

    def wait_for(self, holds: Callable[[Snapshot], bool], what: str, timeout_s: float | None = None) -> Snapshot:
        """Wait until `holds`; raises DemoError naming `what` when the time is up."""
        limit = self.plan.step_s if timeout_s is None else timeout_s
        until = time.monotonic() + limit
        while True:
            snapshot = self.tick()
            if holds(snapshot):
                return snapshot
            if time.monotonic() > until:
                raise DemoError(f"waited {limit:g} s for {what}: {snapshot}")
            time.sleep(_TICK_S)

    def during(self, action: Callable[[], _T], what: str) -> _T:
        """Run something slow beside the show and return its result."""
        with ThreadPoolExecutor(1, thread_name_prefix="scene") as pool:
            outcome: Future[_T] = pool.submit(action)
            self.wait_for(lambda _: outcome.done(), what, self.plan.start_s)
            return outcome.result()

    def consumers(self) -> list[Process]:
        """Return the consumers that run, oldest first."""
        return [p for p in self.stage.processes if p.name.startswith("consumer") and p.running]
