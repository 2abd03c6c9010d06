"""A private PostgreSQL cluster, from the programs in a folder: own data, own port, own password."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from outbox.servers import processes
from outbox.servers.accounts import Account, account
from outbox.servers.errors import StartFailed
from outbox.servers.instance import Instance, environment, tail, wait_until
from outbox.servers.ports import LOOPBACK, Port

START = 60.0  # seconds for initdb, and for the server to be ready
STOP = 30.0  # seconds to stop, of its own or killed
TRIES = 3
_SOCKET_LIMIT = 90  # bytes of a folder's path whose socket fits into sockaddr_un on every system
_PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # the PostgreSQL project's RPMs
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)


def find_binaries() -> Path | None:
    """Return the folder of `postgres` and `initdb`: PATH first, then the newest; None without them."""
    on_path = shutil.which("postgres")
    folders = [Path(on_path).parent] if on_path else []
    for place in _PLACES:
        folders += sorted(Path("/").glob(place[1:]), key=_version, reverse=True)
    for folder in folders:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    return None


def _version(folder: Path) -> int:
    numbers = re.findall(r"\d+", str(folder))
    return int(numbers[-1]) if numbers else 0


def database_account() -> Account | None:
    """Return the account for a server that refuses to run as root; None for an ordinary user.

    Raises StartFailed if root has no such account at hand.
    """
    who = account(["postgres", "nobody"])
    if who is None and os.geteuid() == 0:
        raise StartFailed("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
    return who


class Cluster:
    """A cluster with real durability: fsync stays on unless `settings` turn it off.

    Raises StartFailed if it can't be made; then nothing is left behind.
    """

    def __init__(self, instance: Instance, bin_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.bin_dir = bin_dir
        self._instance = instance
        self._settings = dict(settings or {})
        self._lock = threading.RLock()
        self._server: subprocess.Popen[bytes] | None = None
        self._password = secrets.token_hex(16)
        self._port = Port()
        self.data_dir = instance.folder / "data"
        self._log = instance.folder / "server.log"
        self._env = environment(instance.folder)
        try:
            self._create()
            self._first_start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The URL of the database `postgres` for the superuser."""
        return f"postgresql://postgres:{self._password}@{LOOPBACK}:{self._port.number}/postgres"

    @property
    def pid(self) -> int | None:
        """The postmaster's pid, None while it is down."""
        with self._lock:
            return None if self._server is None or self._server.poll() is not None else self._server.pid

    def start(self) -> None:
        """Start on the same port and data; retried, as a crash leaves shared memory in use for a moment."""
        with self._lock:
            if self.pid is not None:
                return
            for attempt in range(TRIES):
                self._reap()
                server = self._spawn()
                if wait_until(self._ready, timeout=START, alive=lambda: server.poll() is None):  # noqa: B023
                    return
                self.kill()
                if attempt + 1 == TRIES:
                    raise StartFailed(f"PostgreSQL from {self.bin_dir} did not start: {tail(self._log)}")

    def stop(self) -> None:
        """Stop fast: sessions are ended, a checkpoint is written."""
        with self._lock:
            if self._server is None:
                return
            self._server.send_signal(signal.SIGINT)
            self._reap(STOP)
            # Seen with PostgreSQL 15: a client that was left waiting by a pause and never went on held up a stop
            # for 60 seconds, through SIGQUIT too. So the next degree is SIGKILL, to the sessions as well.
            self.kill()

    def kill(self) -> None:
        """Crash: SIGKILL to the postmaster and, as a power cut would, to its sessions as well."""
        with self._lock:
            if self._server is None:
                return
            family = self._family()
            processes.send(family, signal.SIGKILL)
            self._reap(STOP)
            wait_until(lambda: not any(map(processes.alive, family)), timeout=STOP, alive=lambda: True)

    def pause(self) -> None:
        """Freeze the postmaster and its sessions."""
        processes.send(self._family(), signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        processes.send(self._family(), signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its data."""
        with self._lock:
            self._instance.close()
            self._server = None
            self._port.close()

    def _create(self) -> None:
        secret = self._instance.write("password", f"{self._password}\n")
        argv = [str(self.bin_dir / "initdb"), "-D", str(self.data_dir), "-U", "postgres", "--no-sync"]
        argv += ["--encoding=UTF8", "--no-locale", "--auth=scram-sha-256", f"--pwfile={secret}"]
        log = self._instance.folder / "initdb.log"
        # Ended by SIGTERM, it ends its own server in good order, which gives its shared memory back.
        self._instance.run(argv, env=self._env, log=log, timeout=START, ending=signal.SIGTERM)
        secret.unlink()

    def _first_start(self) -> None:
        """Start for the first time; a port that was taken all the same is exchanged for another."""
        for attempt in range(TRIES):
            self._configure()
            try:
                self.start()
            except StartFailed as error:
                if "in use" not in str(error) or attempt + 1 == TRIES:
                    raise
                self._port.close()
                self._port = Port()
            else:
                return

    def _configure(self) -> None:
        folder = str(self._instance.folder)
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self._port.number),
            "unix_socket_directories": folder if len(os.fsencode(folder)) <= _SOCKET_LIMIT else "",
            "max_connections": "200",
            **self._settings,
        }
        lines = [f"{name} = '{_quoted(value)}'\n" for name, value in settings.items()]
        with (self.data_dir / "postgresql.conf").open("a") as file:
            file.writelines(lines)  # the last one of a name counts

    def _spawn(self) -> subprocess.Popen[bytes]:
        argv = [str(self.bin_dir / "postgres"), "-D", str(self.data_dir)]
        # The guard ends it with SIGQUIT: at once, and still removing its System V shared memory.
        server = self._instance.spawn(argv, env=self._env, log=self._log, ending=signal.SIGQUIT)
        self._server = server
        return server

    def _ready(self) -> bool:
        """Read the pid file as `pg_ctl --wait` does: the last line tells the state."""
        with suppress(OSError):
            lines = (self.data_dir / "postmaster.pid").read_text().split("\n")
            mine = self._server is not None and lines[0] == str(self._server.pid)
            return mine and len(lines) > 7 and lines[7].strip() == "ready"
        return False

    def _family(self) -> list[int]:
        pid = self.pid
        return [] if pid is None else [pid, *processes.children(pid)]

    def _reap(self, timeout: float = 0) -> None:
        if self._server is not None and self._instance.reap(self._server, timeout):
            self._server = None


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")
