"""No window is forgotten: each statement that writes has its barriers, each barrier its place and its cells."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

import outbox
import outbox_consumer
import outbox_relay
from crash.cells import CELLS
from crash.windows import BESIDE, MOMENTS, WRITES
from outbox.processes.barriers import Barrier

_WRITES = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM|MERGE INTO) \{schema\}\.|\{schema\}\.(?!clock\()\w+\(")
_COMMENT = re.compile(r"--.*")
_HIT = re.compile(r"\bhit\(Barrier\.(\w+)\)")


def _writing() -> set[str]:
    """Return the names of the statements that write, or call a function that does."""
    folder = resources.files(outbox) / "sql"
    texts = {file.name.removesuffix(".sql"): file.read_text(encoding="utf-8") for file in folder.iterdir()}
    return {name for name, text in texts.items() if _WRITES.search(_COMMENT.sub("", text))}


def test_every_statement_that_writes_has_its_barriers_or_a_reason_for_none() -> None:
    """Whoever adds a statement that writes says where a crash beside it is tried, and whoever drops one unsays it."""
    assert _writing() == WRITES.keys()


@pytest.mark.parametrize("barrier", Barrier)
def test_every_barrier_is_passed_and_stands_beside_something(barrier: Barrier) -> None:
    """A barrier that no code passes would be a cell that can't hold; one beside nothing is not needed."""
    folders = [Path(package.__file__).parent for package in (outbox, outbox_relay, outbox_consumer)]
    sources = [
        file.read_text(encoding="utf-8")
        for folder in (*folders, Path(__file__).parent)
        for file in folder.rglob("*.py")
    ]
    assert any(barrier.name in _HIT.findall(source) for source in sources)
    beside = {one for around in WRITES.values() if not isinstance(around, str) for one in around}
    assert (barrier in beside) is not (barrier in BESIDE)


def test_every_moment_that_must_converge_has_its_cells() -> None:
    """Each moment in which a crash must converge is named, and tried."""
    names = [cell.name for cell in CELLS]
    missing = [
        f"{moment}: {start}"
        for moment, starts in MOMENTS.items()
        for start in starts
        if not any(name.startswith(start) for name in names)
    ]
    assert missing == []
