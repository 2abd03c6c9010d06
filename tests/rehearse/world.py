"""The shop on real servers: its relays and consumers, each with a port for its figures, and a provider with moods."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import support.ground
from crash.processes import Process
from outbox import enqueue_many
from outbox.servers.ports import free_port
from outbox_schemas import Payload
from rehearse.work import MOOD, RELEASE, TABLES
from support.ground import Ground

__all__ = ["Shop", "ground", "shop"]

_COMMAND_S = 60.0
_SERVER = {"max_connections": "100", "wal_level": "replica", "max_wal_senders": "4"}


@contextmanager
def ground() -> Iterator[Ground]:
    """Start the servers, and end all that was started."""
    with support.ground.ground("rehearse", _SERVER) as servers:
        yield servers


class Shop(support.ground.World):
    """One rehearsal's own."""

    # Lost hints come back within seconds, and the pace of everything else is the product's own.
    settings: ClassVar[Mapping[str, str]] = {"OUTBOX_RELAY_REHINT_AFTER_S": "2"}
    variables: dict[str, str] = {}  # noqa: RUF012 - never changed in place before it is the object's own
    """What the page's reader has in the shell: `$RELAY`, `$CONSUMER`, `$WHO`, and what the situation is about."""

    def open(self, *, release: str = "good") -> None:
        """Start a relay and a consumer, in a good mood."""
        self.variables = {**self.variables, "WHO": "ada"}
        self.is_("fine")
        self.relay = self.start_relay()
        self.consumer = self.start_consumer(release=release)
        self.stand([self.relay, self.consumer])

    def is_(self, mood: str) -> None:
        """Say how the provider is from now on."""
        (self.folder / "mood").write_text(mood, encoding="ascii")

    def start_relay(self, **env: str) -> Process:
        """Start one, whose figures are at `$RELAY`."""
        return self._start("RELAY", "relay", ["relay", "--json"], env)

    def start_consumer(self, *, release: str = "good", **env: str) -> Process:
        """Start one with a release of the handlers, whose figures are at `$CONSUMER`."""
        return self._start("CONSUMER", "consumer", ["consume", "--json", "rehearse.work"], {RELEASE: release, **env})

    def submit(self, *payloads: Payload) -> list[UUID]:
        """Commit jobs."""
        with self.engine.begin() as connection:
            return [ref.id for ref in enqueue_many(connection, payloads)]

    def state(self, job_id: UUID) -> str:
        """Return a job's state."""
        return str(self.database.value("SELECT state FROM {s}.jobs WHERE id = %s", job_id))

    def count(self, state: str) -> int:
        """Return how many jobs are in a state."""
        return self.database.count("jobs WHERE state = %s", state)

    def ended(self, jobs: Sequence[UUID], state: str = "succeeded") -> None:
        """Wait until jobs have ended so."""
        self.until(lambda: all(self.state(job) == state for job in jobs), f"{len(jobs)} jobs have {state}", 60)

    def run(self, commands: str) -> tuple[int, str]:
        """Run commands as the page's reader would, in one shell, and return the exit code and all that was shown."""
        shown = subprocess.run(
            [shutil.which("bash") or "/bin/bash", "-c", commands],
            env=self.environment() | self.variables | {"PATH": self._path()},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_S,
            check=False,
        )
        return shown.returncode, shown.stdout.decode(errors="replace")

    def environment(self) -> dict[str, str]:
        """Add what the shop's own code reads, and its key file where there is one."""
        keys = self.folder / "keys.toml"
        own = {MOOD: str(self.folder / "mood")} | ({"OUTBOX_KEYS_FILE": str(keys)} if keys.exists() else {})
        return super().environment() | own

    def _start(self, variable: str, name: str, arguments: list[str], env: Mapping[str, str]) -> Process:
        address = f"127.0.0.1:{free_port()}"
        self.variables[variable] = address
        environment = self.environment() | {"OUTBOX_TELEMETRY_LISTEN": address} | env
        return self._workshop.outbox(name, *arguments, env=environment)

    def _path(self) -> str:
        programs = [Path(sys.executable).parent, self.ground.postgres.bin_dir]
        return os.pathsep.join([*(str(folder) for folder in programs if folder), os.environ.get("PATH", os.defpath)])


@contextmanager
def shop(ground: Ground) -> Iterator[Shop]:
    """Make one, and drop it."""
    with Shop.on(ground, TABLES) as made:
        yield made
