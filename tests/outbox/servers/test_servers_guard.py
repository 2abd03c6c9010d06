"""Callers that die: whatever they started is gone soon, and nothing else is touched."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import outbox.servers
from outbox.servers import guard
from outbox.servers.instance import wait_until
from outbox.servers.processes import alive

GONE = 15.0  # seconds, far above the guard's tick
CALLER = """
import os, signal, sys, time
from contextlib import ExitStack
from outbox.servers import Source, postgres, rabbitmq
kinds = {"postgres": postgres, "rabbitmq": rabbitmq}
with ExitStack() as stack:
    servers = [stack.enter_context(kinds[kind](private=True, sources=[Source.BINARIES, Source.WHEEL]))
               for kind in sys.argv[1].split(",")]
    if os.fork() == 0:  # a child that outlives the caller and holds the guard's pipe
        time.sleep(60)
        os._exit(0)
    print(*[f"{server.pid} {server.data_dir.parent}" for server in servers], flush=True)
    signal.pause()
"""


def _caller(kinds: str) -> tuple[subprocess.Popen[str], list[int], list[Path]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CALLER, kinds], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout
    words = process.stdout.readline().split()
    return process, [int(word) for word in words[::2]], [Path(word) for word in words[1::2]]


def _ends(process: subprocess.Popen[str], pids: list[int], folders: list[Path], number: int) -> bool:
    try:
        process.send_signal(number)
        process.wait(GONE)
        return wait_until(
            lambda: not any(map(alive, pids)) and not any(folder.exists() for folder in folders),
            timeout=GONE,
            alive=lambda: True,
        )
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the forked child
        assert process.stdout
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_caller_dies_and_its_database_is_gone(number: signal.Signals) -> None:
    """A caller that dies without a word leaves neither server nor folder, though a forked child lives on."""
    process, pids, folders = _caller("postgres")
    assert alive(pids[0])
    assert _ends(process, pids, folders, number)


@pytest.mark.slow
def test_caller_dies_and_its_broker_is_gone() -> None:
    """The same for a broker: node and name server end."""
    process, pids, folders = _caller("rabbitmq")
    book = [guard.parse(path.read_text()) for path in (folders[0] / guard.RECORDS).iterdir()]
    pids = [record.pid for record in book if record]
    assert len(pids) == 2
    assert all(map(alive, pids))
    assert _ends(process, pids, folders, signal.SIGKILL)


def test_guard_leaves_a_reused_pid_alone(tmp_path: Path) -> None:
    """A record whose start time is not that of the process now under its pid names a process that is gone."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = tmp_path / "server"
    (folder / guard.RECORDS).mkdir(parents=True)
    rest = " ".join(["0"] * 30)
    (folder / guard.RECORDS / "0001").write_text(f"{bystander.pid} {int(signal.SIGTERM)} {rest}\n")
    guard.end(folder)
    assert not folder.exists()
    assert bystander.poll() is None
    bystander.communicate(b"\n", timeout=GONE)
    assert bystander.returncode == 0


def test_guard_ends_a_paused_process_that_ignores_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is frozen or deaf to its ending signal is ended by SIGKILL after the grace."""
    monkeypatch.setattr(guard, "GRACE", 0.5)
    script = "import signal,os\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(flush=True)\nsignal.pause()"
    deaf = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert deaf.stdout
    deaf.stdout.readline()
    folder = tmp_path / "server"
    (folder / guard.RECORDS).mkdir(parents=True)
    (folder / guard.RECORDS / "0001").write_text(f"{deaf.pid} {int(signal.SIGTERM)}\n")
    deaf.send_signal(signal.SIGSTOP)
    guard.end(folder)
    assert deaf.wait(GONE) == -signal.SIGKILL
    deaf.stdout.close()
    assert not folder.exists()


def test_incomplete_record_is_not_read() -> None:
    """A record that is being written is waited for, not misread as a shorter pid."""
    assert guard.parse("") is None
    assert guard.parse("123") is None
    assert guard.parse("123 9") is None
    assert guard.parse("123 9 \n") == guard.Record(123, 9, "")


def test_command_prints_what_a_shell_can_evaluate() -> None:
    """`python -m outbox.servers` prints the exports, and ends with status 0 at SIGINT."""
    env = {
        **os.environ,
        "OUTBOX_DATABASE_URL": "postgresql://u:p@h/d?a=1&b=2",
        "OUTBOX_AMQP_URL": "amqp://h/",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "outbox.servers"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=GONE)
    assert process.returncode == 0
    assert lines == [
        "export OUTBOX_DATABASE_URL='postgresql://u:p@h/d?a=1&b=2'\n",
        "export OUTBOX_AMQP_URL=amqp://h/\n",
    ]
    assert ":p@" not in said


ORDINARY = """
import os
from outbox.servers import Source, postgres, rabbitmq
assert os.geteuid() != 0
with postgres(private=True, sources=[Source.BINARIES, Source.WHEEL]) as database:
    database.kill()
    database.start()
    print(database.url, flush=True)
    input()
with rabbitmq(private=True, sources=[Source.BINARIES]) as broker:
    print(broker.ctl("list_users").split()[2], broker.data_dir.parent.owner())
"""


def _system_python() -> str | None:
    """Find a Python that any user may run: the tests' own may stand in a folder closed to others."""
    for candidate in (
        os.path.realpath(sys.executable),
        shutil.which("python3", path="/usr/bin:/usr/local/bin"),
    ):
        if candidate and not any(parent.stat().st_mode & 1 == 0 for parent in Path(candidate).parents):
            return candidate
    return None


@pytest.fixture
def library() -> Iterator[Path]:
    """Yield a copy of the package that anybody may read; pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory(prefix="outbox-library-") as folder:
        library = Path(folder)
        shutil.copytree(Path(outbox.servers.__file__).parent, library / "outbox" / "servers")
        for path in (library, *library.rglob("*")):
            path.chmod(0o755)
        yield library


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's run is what every other test here is")
def test_ordinary_user(library: Path) -> None:
    """Somebody who is not root, without a usable HOME, gets both servers too."""
    python = _system_python()
    assert python, "no Python that another user may run"
    nobody = pwd.getpwnam("nobody")
    env = {"PATH": "/usr/bin:/bin:/usr/sbin", "HOME": "/nonexistent", "PYTHONPATH": str(library)}
    process = subprocess.Popen(
        [python, "-c", ORDINARY],
        env=env,
        cwd="/",
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    url = process.stdout.readline().strip()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    output, _ = process.communicate("\n", timeout=90)
    assert process.returncode == 0
    assert output.split() == ["outbox", "nobody"]


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--nonsense", 2), ("start", 2)])
def test_command_starts_nothing_for_other_arguments(argument: str, code: int) -> None:
    """`--help` shows help and anything else is wrong usage; neither prints an export."""
    done = subprocess.run(
        [sys.executable, "-m", "outbox.servers", argument], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code
    assert "usage: python -m outbox.servers" in done.stdout + done.stderr
    assert "export" not in done.stdout
