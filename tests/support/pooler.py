"""A PgBouncer of a test's own in front of the run's PostgreSQL, where the machine has one."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy as sa

from outbox.servers.cluster import database_account
from outbox.servers.instance import Instance, environment, tail, wait_until
from outbox.servers.ports import LOOPBACK, free_port

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
"""PgBouncer's program, or None."""

_SETTINGS = """\
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = {loopback}
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
ignore_startup_parameters = {ignored}
"""


@dataclass(frozen=True)
class Pooler:
    """A pooler that runs; `url` names the same database through it."""

    url: str
    log: Path


@contextmanager
def pooler(url: str, *, mode: str = "transaction", size: int = 3, ignored: str = "options") -> Iterator[Pooler]:
    """Yield a pooler before the database of `url`, which lends `size` sessions of the server to all its clients."""
    assert PROGRAM is not None
    server = sa.make_url(url)
    own_port = free_port()
    instance = Instance("pgbouncer", database_account())
    try:
        settings = _SETTINGS.format(
            host=server.host,
            port=server.port or 5432,
            user=server.username,
            password=server.password or "",
            loopback=LOOPBACK,
            own_port=own_port,
            mode=mode,
            size=size,
            ignored=ignored,
        )
        file, log = instance.write("pgbouncer.ini", settings), instance.folder / "pgbouncer.log"
        argv = [PROGRAM, str(file)]
        process = instance.spawn(argv, env=environment(instance.folder), log=log, ending=signal.SIGINT)
        pooled = server.set(host=LOOPBACK, port=own_port).update_query_dict({"sslmode": "disable"})
        found = Pooler(pooled.render_as_string(hide_password=False), log)
        ready = wait_until(lambda: _answers(found.url), timeout=20, alive=lambda: process.poll() is None)
        assert ready, tail(log)
        yield found
    finally:
        instance.close()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
