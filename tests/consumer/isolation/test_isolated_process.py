"""A real consumer and its children: what its end, and a supervisor's signal to all of them, mean for a child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outbox_consumer.contract.isolation_terms import MIB, Terms
from outbox_consumer.isolation.hello import hello_for
from outbox_consumer.isolation.process import Child
from support.consuming import Desk
from support.isolated import ScriptHandler
from support.isolated_payloads import is_alive, submit
from support.waiting import until

TERMS = Terms(None, None, MIB, max_jobs=1000, max_age_s=3600)


@pytest.fixture
def consumer(desk: Desk, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start `outbox consume` for the scripts; it ends with the test."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from outbox.cli.root import main; main()",
                "consume",
                "support.isolated:ScriptHandler",
            ],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])
                ),
                "OUTBOX_DATABASE_URL": desk.database.url,
                "OUTBOX_CONSUMER_CONCURRENCY": "1",
            },
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=tmp_path,
        )
    yield process
    process.kill()
    process.wait()


def running_child(folder: Path, consumer: subprocess.Popen[bytes]) -> int:
    """Return the process in which a handler runs, once it does."""
    until((folder / "running").exists, within_s=60)
    pid = int((folder / "running").read_text(encoding="ascii"))
    assert pid != consumer.pid
    return pid


@pytest.mark.parametrize("does", ["stubborn", "holds_the_lock"])
def test_killed_consumer_leaves_no_child(
    desk: Desk, tmp_path: Path, consumer: subprocess.Popen[bytes], does: str
) -> None:
    """SIGKILL of the consumer ends its children, whatever they are doing."""
    if does == "holds_the_lock" and sys.platform != "linux":
        pytest.skip("only Linux's kernel ends a child that never runs Python again")
    submit(desk, does, tmp_path)
    pid = running_child(tmp_path, consumer)
    consumer.kill()
    until(lambda: not is_alive(pid), within_s=5)


def test_signal_to_all_processes_ends_none_that_works(
    desk: Desk, tmp_path: Path, consumer: subprocess.Popen[bytes]
) -> None:
    """A supervisor that sends SIGTERM to the consumer and its children alike cuts no attempt short."""
    job_id = submit(desk, "reports", tmp_path)
    pid = running_child(tmp_path, consumer)
    for target in (pid, consumer.pid):
        os.kill(target, signal.SIGTERM)
    until(lambda: b"consumer stopping" in (tmp_path / "log").read_bytes())
    (tmp_path / "go").touch()
    assert consumer.wait(30) == 0
    assert desk.outcomes(job_id) == ["succeeded"]
    assert not is_alive(pid)


def test_child_ends_by_itself_once_its_line_is_closed(desk: Desk) -> None:
    """Where no kernel ends it, and whenever it is not needed any more, the closed socket does."""
    child = Child(TERMS)
    child.greet(hello_for(ScriptHandler(), desk.settings(), TERMS))
    child.line.close()
    assert child._process.wait(30) == 0
    child.end()


def test_idle_child_ends_by_itself_when_it_is_old(desk: Desk) -> None:
    """A child that nobody needs any more does not hold its memory for ever."""
    young = replace(TERMS, max_age_s=-4.5)  # five seconds later the consumer would surely not lend it
    child = Child(young)
    child.greet(hello_for(ScriptHandler(), desk.settings(), young))
    until(child.gone)
    assert child._process.returncode == 0
    child.end()


def test_the_group_of_a_child_that_has_ended_is_ended_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may belong to a stranger by the time somebody asks again."""
    child = Child(TERMS)
    child.greet(hello_for(ScriptHandler(), desk.settings(), TERMS))
    ended: list[int] = []
    killpg = os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: (ended.append(pid), killpg(pid, number)))
    child.kill()
    until(child.gone)
    assert ended == [child.pid] * 2, "what it has started goes with it"
    assert child.gone()
    child.kill()
    child.end()
    assert ended == [child.pid] * 2


def test_no_secret_stands_on_the_command_line(desk: Desk, tmp_path: Path, consumer: subprocess.Popen[bytes]) -> None:
    """What the process list shows of a child is our own text and three numbers."""
    submit(desk, "forever", tmp_path)
    pid = running_child(tmp_path, consumer)
    shown = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert desk.database.url.encode() not in b" ".join(shown)
    assert [argument.isdigit() for argument in shown[3:6]] == [True] * 3
