"""A PgBouncer of a test's own in front of its database, in transaction mode, with fewer sessions than clients."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import sqlalchemy as sa

from outbox.servers import databases
from support.native import free_port
from support.waiting import until

__all__ = ["PGBOUNCER", "pooled"]

PGBOUNCER = shutil.which("pgbouncer")
"""The program, or None."""

_SETTINGS = """[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 500
ignore_startup_parameters = {ignored}
server_reset_query =
"""


@contextmanager
def pooled(url: str, folder: Path, *, sessions: int = 3, ignored: str = "options") -> Iterator[str]:
    """Start one and yield the database's URL through it; it ends with the block. `ignored`: start-up parameters that it
    passes over, where it refuses others.
    """
    assert PGBOUNCER is not None
    behind, listen = sa.make_url(databases.plain(url)), free_port()
    settings = folder / "pgbouncer.ini"
    filled = {"host": behind.host, "port": behind.port or 5432, "user": behind.username, "password": behind.password}
    settings.write_text(_SETTINGS.format(**filled, listen=listen, sessions=sessions, ignored=ignored))
    # It refuses to run as root, and reads the file as whom it becomes.
    nobody = ["-u", "nobody"] if os.getuid() == 0 else []
    if nobody:
        shutil.chown(settings, "nobody")
        for parent in [folder, *folder.parents][:4]:
            parent.chmod(parent.stat().st_mode | 0o011)
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([PGBOUNCER, "-q", *nobody, str(settings)], stdout=log, stderr=log)
    through = behind.set(host="127.0.0.1", port=listen).render_as_string(hide_password=False)

    def answers() -> bool:
        assert process.poll() is None, (folder / "pgbouncer.log").read_text()
        try:
            psycopg.connect(through, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        until(answers)
        yield through
    finally:
        process.terminate()
        process.wait(20)
