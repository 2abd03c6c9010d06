"""The search of `make secrets` finds what comes out, by each way out."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from planted.watch import Watch
from planted.words import Words
from support.database import Database
from support.jobs import running
from support.sealing import secret

TESTS = Path(__file__).parents[1]
MARK = "leaked-on-purpose-"
WORD = f"{MARK}1"
LEAKING = """
import logging, subprocess, sys, time
WORD = "leaked-on-purpose-1"
SAY = "print('leaked-on-purpose-1')"
def test_sound(): print("nothing")
def test_print(): print(WORD)
def test_error(): print(WORD, file=sys.stderr)
def test_debug_log(): logging.getLogger("outbox.consumer").debug("x", extra={"y": WORD})
def test_read(capsys): print(WORD); assert capsys.readouterr().out
def test_pipe(): assert subprocess.run([sys.executable, "-c", SAY], capture_output=True).stdout
def test_file(tmp_path):
    with (tmp_path / "log").open("w") as log: subprocess.run([sys.executable, "-c", SAY], stdout=log)
def test_span():
    from outbox.telemetry.process import open_telemetry
    from outbox.tracing.contract import CLAIM
    open_telemetry("relay", None).tracing.open(CLAIM, WORD, {}).end()
def test_command_line(): subprocess.run([sys.executable, "-c", "import time; time.sleep(1)", WORD])
"""


def test_each_way_out_is_searched(tmp_path: Path) -> None:
    """The tests that leak fail, the sound one does not, and a command line fails the run; nothing is repeated."""
    (tmp_path / "test_leaking.py").write_text(LEAKING, encoding="ascii")
    options = ("-p", "planted.watch", "-p", "no:cacheprovider", "-p", "no:randomly", "--show-capture=no", "-q", "-rE")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, "--rootdir", str(tmp_path), "test_leaking.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1", "PLANTED_MARK": MARK},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    leaked = re.findall(r"^ERROR \S+::test_(\w+)", done.stdout, re.MULTILINE)
    assert sorted(leaked) == ["debug_log", "error", "file", "pipe", "print", "read", "span"], done.stdout
    assert "a secret in the command line of" in done.stdout
    assert WORD not in done.stdout + done.stderr


def test_rows_are_searched_but_for_payloads(database: Database) -> None:
    """An error that holds a secret is found, in clear or as bytes; a payload is where it belongs."""
    watch = Watch(cast("pytest.Config", SimpleNamespace(workerinput={})))
    watch.words = Words(MARK)
    try:
        [item] = running(database, database.link())
        database.rows("UPDATE {s}.jobs SET payload = jsonb_build_object('card', %s::text)", WORD)
        watch._search_rows(database)
        assert watch._found == []
        for value in ("last_error = %s", "needs_key = encode(convert_to(%s, 'UTF8'), 'hex')"):
            database.rows(f"UPDATE {{s}}.outbox SET {value} WHERE job_id = %s", WORD, item.lease.job_id)
            watch._search_rows(database)
            assert watch._found == ["a secret in 1 rows of outbox"]
            watch._found.clear()
            database.rows("UPDATE {s}.outbox SET last_error = NULL, needs_key = NULL")
    finally:
        database.rows("UPDATE {s}.outbox SET last_error = NULL, needs_key = NULL")
        watch.pytest_unconfigure()


@pytest.mark.parametrize("written", ["p%40ss-word-of-a-server", "p@ss-word-of-a-server"])
def test_words_are_known_in_every_form(written: str) -> None:
    """Passwords raw and encoded, keys in hexadecimal and base64; what is too short to be told apart is none."""
    words = Words(MARK)
    words.add_address(f"postgresql://u:{written}@h/d")
    words.add_address("amqp://u:guest@h/")
    key = secret("watch")
    keys = (key.hex(), base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode(), repr(key))
    for text in ("p@ss-word-of-a-server", "x p%40ss-word-of-a-server", *keys, WORD):
        assert words.found(f"so {text} came out")
    assert not words.found("guest, leaked-on-purpose")
