"""Starts are stamped by the handlers' own processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from measure.stamps import clear_stamps, count_stamps, read_stamps

BENCH = Path(__file__).resolve().parents[2] / "bench"
_STAMP = "from measure.stamps import stamp\nfor number in range(1000): stamp(number)\n"
_FORK = """
import os, time
from measure.stamps import flush, stamp
stamp(1)
child = os.fork()
if child == 0:
    stamp(2)
    flush()
    os._exit(0)
os.waitpid(child, 0)
"""


def _run(script: str, folder: Path, **environment: str) -> None:
    env = os.environ | {"PYTHONPATH": str(BENCH), "BENCH_STAMPS": str(folder)} | environment
    subprocess.run([sys.executable, "-c", script], env=env, check=True)


@pytest.mark.parametrize("at_once", ["0", "1"])
def test_every_start_is_there_once_the_process_has_ended(tmp_path: Path, at_once: str) -> None:
    """Gathered or written at once, none is missing and each has its instant."""
    _run(_STAMP, tmp_path, BENCH_STAMPS_FLUSH=at_once)
    stamps = dict(read_stamps(tmp_path))
    assert sorted(stamps) == list(range(1000))
    assert count_stamps(tmp_path) == 1000
    assert min(stamps.values()) > 1_500_000_000


def test_a_forked_child_has_a_file_of_its_own(tmp_path: Path) -> None:
    """Neither doubles the other's stamps."""
    _run(_FORK, tmp_path)
    assert sorted(number for number, _ in read_stamps(tmp_path)) == [1, 2]
    assert len(list(tmp_path.glob("*.stamps"))) == 2


def test_nothing_is_written_unless_asked_for(tmp_path: Path) -> None:
    """A worker outside of a measurement stamps nothing."""
    _run(_STAMP, tmp_path, BENCH_STAMPS="")
    assert count_stamps(tmp_path) == 0


def test_clearing_forgets_them(tmp_path: Path) -> None:
    """The next measurement starts from none."""
    _run(_STAMP, tmp_path)
    clear_stamps(tmp_path)
    assert count_stamps(tmp_path) == 0
