"""The servers of one test run: started by the process that owns the run, shared by its workers.

Workers of pytest-xdist ask the controller over a local socket: a server outlives each of them, and none is left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from outbox.migrations import upgrade_database
from outbox.servers import NoBroker, NoServer, Postgres, install_rabbitmq_with_apt, postgres, rabbitmq

# The longest chain is apt's own: update, install, then the broker's start.
ANSWER_TIMEOUT_S = 900
# Tests of durability start servers of their own; this one may be fast.
_FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "200", "max_wal_size": "256MB"}
_MEMORY = Path("/dev/shm")
_LEAST_MEMORY = 4 * 1024**3  # bytes
SCHEMA = "outbox"


@dataclass(frozen=True)
class Template:
    """A migrated database that nobody connects to, and the server on which it can be cloned."""

    server_url: str
    name: str


def memory() -> Path | None:
    """Return the folder of a file system in memory, if there is one with room for the servers of a run.

    Each test makes and drops a database of some hundred files, which takes a disk twenty times as long. A small one, as
    a container has, or one from which nothing is executed (a server's programs may be copied there) is of no use.
    """
    if not _MEMORY.is_dir() or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _LEAST_MEMORY else None


class RunServers:
    """What this run has started. `get` is safe from any thread; `close` ends what was started here."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._locks = {name: threading.Lock() for name in ("postgres", "rabbitmq", "template")}
        self._values: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """Return the URL of `postgres` or `rabbitmq`, or the migrated `template`. Raises `NoServer`."""
        with self._locks[name]:
            if name not in self._values:
                try:
                    self._values[name] = getattr(self, f"_{name}")()
                except (psycopg.OperationalError, sa.exc.OperationalError) as error:
                    raise NoServer(f"the PostgreSQL of this run can't be used: {error}") from error
            return self._values[name]

    def close(self) -> None:
        """End what was started, and drop the template."""
        self._stack.close()

    def _postgres(self) -> str:
        return self._stack.enter_context(postgres(settings=_FAST, parent=memory())).url

    def _rabbitmq(self) -> str:
        try:
            return self._stack.enter_context(rabbitmq(parent=memory())).url
        except NoBroker:
            install_rabbitmq_with_apt(lambda _: None)
            return self._stack.enter_context(rabbitmq(parent=memory())).url

    def _template(self) -> Template:
        server_url = self.get("postgres")
        name = f"outbox_test_template_{uuid.uuid4().hex[:12]}"
        server = Postgres(server_url, "test run")
        url = server.create_database(name)
        self._stack.callback(server.drop_database, name)
        upgrade_database(url, SCHEMA)
        return Template(server_url, name)


class ServerDesk:
    """Answers the workers' requests, one thread each, in the process that owns the run."""

    def __init__(self, servers: RunServers) -> None:
        self._servers = servers
        self.key = secrets.token_bytes(16)
        self._listener = Listener(None, authkey=self.key)
        self.address: str = str(self._listener.address)
        threading.Thread(target=self._accept, daemon=True, name="server-desk").start()

    def close(self) -> None:
        """Take no more requests."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            try:
                connection.send((True, self._servers.get(connection.recv())))
            except NoServer as error:
                connection.send((False, str(error)))


class RemoteServers:
    """The same `get` for a worker, answered by the desk."""

    def __init__(self, address: str, key: bytes) -> None:
        self._address = address
        self._key = key
        self._values: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """Ask the run's owner; raises `NoServer` as it did, or after 15 minutes without an answer."""
        if name not in self._values:
            with Client(self._address, authkey=self._key) as connection:
                connection.send(name)
                if not connection.poll(ANSWER_TIMEOUT_S):
                    raise NoServer(f"{name} was not started within {ANSWER_TIMEOUT_S} s")
                found, value = connection.recv()
            if not found:
                raise NoServer(value)
            self._values[name] = value
        return self._values[name]

    def close(self) -> None:
        """Nothing here belongs to a worker."""
