"""One private server's folder and processes, as the caller sees them; the guard sees them from outside."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from outbox.servers import guard
from outbox.servers.accounts import Account, reachable, run_as
from outbox.servers.errors import StartFailed

# Enters itself into the book of processes, then becomes the server: same pid. Not entered means not started.
_LAUNCH = (
    "{ read -r s </proc/$$/stat; } 2>/dev/null; "
    'echo "$$ $OUTBOX_ENDING ${s##*) }" >"$0" || exit 127; unset OUTBOX_ENDING; exec "$@"'
)
_LOG_TAIL = 2000  # characters of a server's log that go into an error


class Instance:
    """A folder with processes that end with the caller, however it ends.

    `folder` belongs to the account that the processes run under and is removed at the end. It is made in `parent`, or
    among the temporary files if none is given, or the account can't reach it.
    """

    def __init__(self, name: str, who: Account | None, parent: Path | None = None) -> None:
        self.who = who
        self.folder = _folder_for(who, parent) / f"outbox-{name}-{secrets.token_hex(6)}"
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._processes: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}
        self._count = 0
        # The guard is there before the folder, so that there is no moment in which a death leaves one behind.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(self.folder), str(self._owner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        try:
            self.folder.mkdir(mode=0o700)
        except OSError as error:
            self._dismiss()  # before anything: a folder that was there is not ours to remove
            raise StartFailed(f"{self.folder} can't be made: {error.strerror}") from error
        try:
            self._give(self.folder)
            self.make_folder(guard.RECORDS)
        except BaseException:
            self.close()
            raise

    def make_folder(self, name: str) -> Path:
        """Make a folder inside `folder` that the processes own, mode 0700."""
        path = self.folder / name
        path.mkdir(mode=0o700)
        self._give(path)
        return path

    def write(self, name: str, text: str, *, mode: int = 0o600) -> Path:
        """Write a file inside `folder` that the processes own."""
        path = self.folder / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
            file.write(text)
        self._give(path)
        return path

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path, ending: int) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own; `ending` is the signal that the guard ends it with.

        Standard output and error are appended to `log`. Raises StartFailed if the program can't be executed.
        """
        with self._lock:
            self._count += 1
            record = self.folder / guard.RECORDS / f"{self._count:04}"
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _LAUNCH, str(record), *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.folder,
                    env={**env, "OUTBOX_ENDING": str(int(ending))},
                    start_new_session=True,
                    umask=0o077,
                    **run_as(self.who),
                )
        except OSError as error:
            raise StartFailed(f"{argv[0]} can't be started: {error}") from error
        with self._lock:
            self._processes[process.pid] = (process, record)
        return process

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path, timeout: float, ending: int) -> None:
        """Run a process to its end in `timeout` seconds; raises StartFailed, with its log, if it fails."""
        process = self.spawn(argv, env=env, log=log, ending=ending)
        if not self.reap(process, timeout):
            os.killpg(process.pid, signal.SIGKILL)
            self.reap(process, guard.GRACE)
        if process.returncode != 0:
            raise StartFailed(f"{Path(argv[0]).name} ended with {process.returncode}: {tail(log)}")

    def reap(self, process: subprocess.Popen[bytes], timeout: float) -> bool:
        """Wait up to `timeout` seconds for a process to end and strike it off; False if it goes on."""
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        with self._lock:
            _, record = self._processes.pop(process.pid, (process, None))
        if record is not None:
            record.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        """End every process and remove the folder; does nothing in a forked child of the maker."""
        if os.getpid() != self._owner:
            return
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        for process, _ in list(self._processes.values()):
            self.reap(process, guard.GRACE + guard.REMOVE)  # the guard signals; only the parent can reap
        try:
            self._guard.wait(guard.GRACE + guard.REMOVE)
        except subprocess.TimeoutExpired:
            self._dismiss()
        guard.end(self.folder)  # nothing is left to do unless the guard itself was killed
        for process, _ in list(self._processes.values()):
            self.reap(process, guard.GRACE)

    def _dismiss(self) -> None:
        """End the guard before it can do anything."""
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()

    def _give(self, path: Path) -> None:
        if self.who is not None:
            os.chown(path, self.who.uid, self.who.gid)


def _folder_for(who: Account | None, wanted: Path | None) -> Path:
    """Return a folder for temporary files that `who` can reach: root's own may be closed to others."""
    usual = map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp"))  # noqa: S108 - names are random
    for parent in [*filter(None, [wanted]), *usual]:
        with suppress(OSError):
            if reachable(parent, who):
                return parent
    name = "the current user" if who is None else who.name
    raise StartFailed(f"no temporary folder that {name} can use")


def tail(log: Path) -> str:
    """Return the end of a log on one line, for an error message."""
    with suppress(OSError):
        return " | ".join(log.read_text(errors="replace")[-_LOG_TAIL:].split("\n")).strip(" |")
    return "(no log)"


def wait_until(ready: Callable[[], bool], *, timeout: float, alive: Callable[[], bool]) -> bool:
    """Ask `ready` until it is true; False when `timeout` seconds have passed or `alive` says no."""
    until = time.monotonic() + timeout
    pause = 0.02
    while time.monotonic() < until:
        if ready():
            return True
        if not alive():
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return False


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a clean environment: the caller's PG*, RABBITMQ_* and ERL_* must not steer a private server."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TZ") if name in os.environ}
    path = kept.get("PATH", os.defpath)
    return {**kept, "PATH": f"{path}:/usr/sbin:/sbin", "HOME": str(home), "LC_ALL": "C", **(extra or {})}


def kill_group(pid: int, number: int) -> None:
    """Send a signal to the process group that `pid` leads; a group that is gone is fine."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def group_exists(pid: int) -> bool:
    """Tell whether any process is left in the group that `pid` led."""
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):  # gone, or given to somebody else's process since
        return False
    return True
