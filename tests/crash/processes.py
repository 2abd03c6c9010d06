"""Real processes of the product, what they log, and what can be done to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outbox.processes.barriers import Barrier
from outbox.servers.errors import StartFailed
from outbox.servers.instance import Instance, tail

TESTS = Path(__file__).parents[1]
STALE = "stale write refused"
CLOSING = "consumer stopped"
_STARTED = ("consumer started", "the relay starts")
# They do one thing and end.
_BRIEF = ("writer", "canceller", "rotator", "purger", "redriver", "resolver")
_OUTBOX = "import sys; from outbox.cli.root import main; sys.exit(main())"
_GONE_S = 10.0
_PROVIDER_S = 60.0


@dataclass(frozen=True)
class Armed:
    """A barrier, what happens there, and at which passage."""

    barrier: Barrier
    action: str = "kill"
    nth: int = 1

    def environment(self, mark: Path) -> dict[str, str]:
        """Return the variables that arm a process."""
        spec = f"{self.barrier.value}={self.action}@{self.nth}"
        return {"OUTBOX_BARRIER": spec, "OUTBOX_BARRIER_MARK": str(mark)}


@dataclass
class Process:
    """One process: its log, and the file that its barrier leaves.

    `killer` tells whether its barrier kills it; `judged` whether its end has been looked at; `may_be_refused` whether
    its exit code may say that what it asked for was refused.
    """

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    mark: Path
    killer: bool
    ended_by_us: bool = field(default=False)
    judged: bool = field(default=False)
    may_be_refused: bool = field(default=False)

    @property
    def killed(self) -> bool:
        """Whether it was meant to be killed, and may be gone by now."""
        return self.ended_by_us or (self.killer and self.mark.exists())

    @property
    def good_codes(self) -> tuple[int, ...]:
        """What its exit code may be."""
        if self.killed:
            return (-signal.SIGKILL,)
        return (0, 1) if self.may_be_refused else (0,)

    def stands(self) -> bool:
        """Tell whether it has started to work, or has ended."""
        return self.code is not None or any(map(self.events, _STARTED)) or self.name.startswith(_BRIEF)

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it lives."""
        return self.popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has ended is fine."""
        with suppress(ProcessLookupError):
            os.kill(self.popen.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone."""
        self.ended_by_us = True
        self.signal(signal.SIGKILL)
        self.popen.wait(_GONE_S)

    def held(self) -> bool:
        """Tell whether its barrier has done its work: the mark is there and the process is gone or stopped."""
        if not self.mark.exists():
            return False
        return self.code is not None or _stopped(self.popen.pid)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log's events of one name; a line that a crash cut short is none."""
        found = []
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("event") == name:
                    found.append(entry)
        return found

    def refused(self) -> int:
        """Return how many stale writes of this process the fence has refused."""
        return len(self.events(STALE))

    def counters(self) -> dict[str, Any]:
        """Return the counters of a consumer's closing line; empty if it was killed."""
        closing = self.events(CLOSING)
        return closing[-1] if closing else {}


def start_provider(instance: Instance) -> str:
    """Start the provider in a process of its own, which ends with the instance, and return its address."""
    address, log = instance.folder / "provider.url", instance.folder / "provider.log"
    env = {key: value for key, value in os.environ.items() if not key.startswith("OUTBOX_")}
    arguments = [sys.executable, "-P", "-m", "crash.provider", str(address)]
    popen = instance.spawn(arguments, env=env | {"PYTHONPATH": str(TESTS)}, log=log, ending=signal.SIGKILL)
    deadline = time.monotonic() + _PROVIDER_S
    while not address.exists():
        if popen.poll() is not None or time.monotonic() > deadline:
            raise StartFailed(f"the provider did not start within {_PROVIDER_S:g} s: {tail(log)}")
        time.sleep(0.02)
    return address.read_text(encoding="ascii")


def _stopped(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    return False


class Workshop:
    """Starts the processes of one cell, each with a log in the cell's folder.

    They end with the run even if that is killed: the instance's guard sees to it.
    """

    def __init__(self, instance: Instance, folder: Path) -> None:
        self._instance = instance
        self._folder = folder
        self.processes: list[Process] = []

    def outbox(self, name: str, *arguments: str, env: dict[str, str], armed: Armed | None = None) -> Process:
        """Start the product's command."""
        return self._spawn(name, ["-c", _OUTBOX, *arguments], env, armed)

    def module(self, name: str, *arguments: str, env: dict[str, str], armed: Armed | None = None) -> Process:
        """Start `python -m`."""
        return self._spawn(name, ["-m", *arguments], env, armed)

    def _spawn(self, name: str, argv: list[str], env: dict[str, str], armed: Armed | None) -> Process:
        label = f"{name}-{1 + sum(process.name.startswith(name) for process in self.processes)}"
        log, mark = self._folder / f"{label}.log", self._folder / f"{label}.mark"
        if armed is not None:
            env = env | armed.environment(mark)
        popen = self._instance.spawn([sys.executable, "-P", *argv], env=env, log=log, ending=signal.SIGKILL)
        process = Process(label, popen, log, mark, armed is not None and armed.action == "kill")
        self.processes.append(process)
        return process

    def terminate(self, within_s: float) -> list[str]:
        """Ask all that still run to end; return what went wrong: a wrong exit code, or no end in time.

        What was judged once is not judged again.
        """
        problems = []
        judged = [process for process in self.processes if not process.judged]
        for process in judged:
            process.judged = True
            if process.code is None:
                process.signal(signal.SIGTERM)
                process.signal(signal.SIGCONT)
        deadline = time.monotonic() + within_s
        for process in judged:
            try:
                code = process.popen.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                problems.append(f"{process.name} did not end within {within_s:g} s of SIGTERM")
                continue
            if code not in process.good_codes:
                problems.append(f"{process.name} ended with {code}, not {process.good_codes[0]}")
        return problems

    def close(self) -> None:
        """End everything at once."""
        for process in self.processes:
            process.signal(signal.SIGKILL)
            self._instance.reap(process.popen, _GONE_S)
