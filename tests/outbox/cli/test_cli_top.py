"""`outbox top` with real tables: written once, and on a real (pseudo) terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import queue
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from outbox.cli.top import command as top_command
from outbox.cli.top import work
from outbox.cli.top.reading import Picture, read_picture
from outbox.cli.top.work import Worker
from outbox.database.link import Link
from outbox.errors import SettingsError
from outbox.leases.ending import Failure, fail
from outbox.leases.identity import worker_identity
from outbox.leases.presence import Presence, Role
from outbox.reading.queue_figures import FigureKeeper
from outbox.settings import Settings
from support.database import Database
from support.jobs import Note, running, submit
from support.waiting import until

_SEQUENCES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78])|\x0f")


def test_it_is_written_once_where_there_is_no_terminal(run: Any, database: Database) -> None:
    """Queues, what runs, workers, what waits for a person: as text and as JSON, whoever has counted."""
    link = database.link()
    (mine, other) = running(database, link, 2)
    fail(link, [(other.lease, Failure("terminal", "gone", "m", None))])
    submit(database, 3)
    Presence(Role.RELAY, worker_identity()).tell(link)
    database.rows("UPDATE {s}.outbox SET progress = %s WHERE job_id = %s", "p\x1b[2J", mine.lease.job_id)
    code, shown, errors = run("top", "--once")
    assert code == 0, errors
    [notes] = [line for line in shown.splitlines() if line.startswith("notes ")]
    assert notes.split()[1:4] == ["3", "0", "1"]
    assert "relays 1:" in shown
    assert "no consumer was seen" in shown
    assert "dead letters 1" in shown
    assert "\x1b" not in shown
    found = json.loads(run("top", "--json")[1])
    assert (found["letters"], found["counted_s"], found["queues"][0]["letters"]) == (1, None, 1)
    assert [job["id"] for job in found["running"]] == [str(mine.lease.job_id)]
    assert FigureKeeper().keep(link)
    with link.transaction():
        counted = read_picture(link)
    assert counted.counted_s is not None
    assert (counted.queues[0].ready, counted.queues[0].running) == (3, 1)


def test_looks_that_are_refused_are_put_off(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a look meets is told once, and the next one waits: nobody's server is asked a hundred times a second."""

    def refuse(_link: Link) -> Picture:
        raise SettingsError("not so")

    monkeypatch.setattr(work, "read_picture", refuse)
    worker = Worker(Settings(database_url=SecretStr(database.url)), every_s=60)
    worker.start()
    assert worker.answers.get(timeout=10).note == "not so"
    with pytest.raises(queue.Empty):
        worker.answers.get(timeout=0.3)


class Terminal:
    """A pseudo terminal with a program on it."""

    def __init__(self, url: str, *arguments: str, kind: str = "xterm") -> None:
        self._mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
        self.modes = termios.tcgetattr(theirs)
        environment = os.environ | {"OUTBOX_DATABASE_URL": url, "TERM": kind, "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "outbox", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        self._theirs = theirs
        os.set_blocking(self._mine, False)
        self.raw = ""

    def shows(self, text: str) -> bool:
        """Tell whether a text has been on the screen since `forget`."""
        try:
            while piece := os.read(self._mine, 65_536):
                self.raw += piece.decode("utf-8", "replace")
        except BlockingIOError:
            pass
        return text in _SEQUENCES.sub("", self.raw)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._mine, keys.encode())

    def is_as_before(self) -> bool:
        """Tell whether the terminal's modes are those of before the program."""
        return termios.tcgetattr(self._theirs) == self.modes

    def close(self) -> None:
        """End the program, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._mine)
        os.close(self._theirs)


@pytest.fixture
def terminal(database: Database) -> Iterator[Terminal]:
    """Yield `outbox top` on a terminal of its own."""
    (mine, _) = running(database, database.link(), payloads=[Note(key="first"), Note(key="second")])
    database.rows("UPDATE {s}.outbox SET progress = %s WHERE job_id = %s", "\x1b]0;owned\x07", mine.lease.job_id)
    found = Terminal(database.url, "top", "--every", "0.5")
    yield found
    found.close()


def test_one_works_with_it_on_a_terminal(terminal: Terminal, database: Database) -> None:
    """A queue is opened, a job explained, the queue paused with who and why; a lost session is told and found again;
    and the terminal is left as it was.
    """
    until(lambda: terminal.shows("first"))
    terminal.type("\r")
    until(lambda: terminal.shows("jobs of queue notes"))
    terminal.type("e")
    until(lambda: terminal.shows("unblocked by"))
    terminal.type("qqpops\rbank closed\r")
    paused = until(lambda: database.rows("SELECT name, actor, reason FROM {s}.pauses"))
    assert paused == [("notes", "ops", "bank closed")]
    assert database.value("SELECT count(*) FROM {s}.audit WHERE action = 'work.pause'") == 1
    until(lambda: terminal.shows("queue notes is paused"))
    database.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'outbox-cli/top' AND datname = current_database()"
    )
    until(lambda: terminal.shows("the database is away"))
    everything, terminal.raw = terminal.raw, ""
    submit(database, payloads=[Note(key=f"later/{number}") for number in range(7)])
    terminal.type("\r")  # a screen is drawn by what has changed; this draws most of it
    until(lambda: terminal.shows("later/6"))
    assert "\x1b]0;" not in everything + terminal.raw
    terminal.type("qq")
    assert terminal.process.wait(10) == 0
    assert terminal.is_as_before()


def test_a_request_to_end_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    """SIGTERM ends it with the code that tells so, and not before the terminal is put back."""
    until(lambda: terminal.shows("first"))
    assert not terminal.is_as_before()
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.process.wait(10) == 143
    assert terminal.is_as_before()


def test_a_terminal_that_this_machine_does_not_know_is_written_to_once(database: Database) -> None:
    """As one that can't be driven; it is told why, and what to do."""
    running(database, database.link(), payloads=[Note(key="first")])
    terminal = Terminal(database.url, "top", kind="nobody-knows")
    try:
        assert terminal.process.wait(60) == 0
        assert until(lambda: terminal.shows("first"))
        assert terminal.shows("this machine knows no terminal nobody-knows; TERM=xterm mostly does")
    finally:
        terminal.close()


def test_a_python_without_curses_knows_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows: the picture is written once there."""
    monkeypatch.setitem(sys.modules, "curses", None)
    assert not top_command._is_known()
