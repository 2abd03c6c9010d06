"""The matrix is complete, and its quick cells hold. All of it: `make crash`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crash.cells import CELLS, QUICK, Cell
from crash.matrix import close
from crash.running import Ground, Outcome, run_cell
from outbox.processes.barriers import Barrier

_QUICK_CELLS = [cell for cell in CELLS if cell.quick]


@pytest.mark.parametrize("barrier", Barrier)
def test_every_barrier_is_killed_at_and_paused_at(barrier: Barrier) -> None:
    """Each named window has a cell with SIGKILL and one with SIGSTOP."""
    names = [cell.name for cell in CELLS if cell.barrier is barrier]
    for action in ("kill", "stop"):
        assert any(name.startswith(f"{barrier.value} {action}") for name in names), f"no cell for {barrier} {action}"


def test_names_are_unique_and_the_quick_ones_exist() -> None:
    """A cell is asked for by its name, so no two share one, and none of the quick ones is misspelt."""
    assert [name for name, times in Counter(cell.name for cell in CELLS).items() if times > 1] == []
    assert {cell.name for cell in _QUICK_CELLS} == QUICK
    assert [cell.name for cell in _QUICK_CELLS if cell.server is not None or cell.alone] == []


def test_the_guide_tells_how_many_cells_there_are() -> None:
    """What docs/guarantees.md says of the matrix is counted here."""
    guide = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")
    checking = sum(cell.guilty is not None for cell in CELLS)
    hit = sum(cell.name.startswith(tuple(Barrier)) for cell in CELLS)
    assert f"`make crash` runs {len(CELLS)} cells. In {hit} of them" in guide
    assert f"in {len(CELLS) - hit - checking} what the processes stand on fails" in guide


@pytest.mark.crash
@pytest.mark.timeout(400)
@pytest.mark.parametrize("cell", _QUICK_CELLS, ids=lambda cell: cell.name)
def test_cell_holds(cell: Cell, ground: Ground, tmp_path: Path) -> None:
    """Real processes are hit where the cell says; then everything drains, once."""
    outcome = run_cell(cell, ground, parent=tmp_path)
    assert outcome.problems == [], f"logs: {outcome.logs}"
    if "stop" in cell.name:
        assert outcome.refused > 0


@pytest.mark.parametrize(
    ("outcome", "whole", "status"),
    [
        (Outcome("held", refused=1), True, 0),
        (Outcome("held, but no fence was seen"), True, 1),
        (Outcome("held, one cell only"), False, 0),
        (Outcome("lost", refused=1, lost=1), True, 1),
        (Outcome("doubled", refused=1, doubled=1), True, 1),
        (Outcome("failed", refused=1, problems=["it did not drain"]), True, 1),
    ],
    ids=lambda value: value.name if isinstance(value, Outcome) else None,
)
def test_exit_status(outcome: Outcome, whole: bool, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line counts, and the status is 0 only if all held and the fence was seen to refuse."""
    assert close([outcome], 1.0, whole=whole) == status
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (f"cells 1, lost {outcome.lost}, doubled {outcome.doubled}, stale writes refused {outcome.refused}")
