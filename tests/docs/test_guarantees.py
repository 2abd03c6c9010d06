"""The picture and the table of a job's states say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from outbox_schemas import TRANSITIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"
MOVES = {
    (source.value, event.value, target.value) for (source, event), targets in TRANSITIONS.items() for target in targets
}


def event(text: str) -> str:
    """Return an event's value."""
    return text.strip().replace(" ", "_")


def test_the_picture_shows_every_move_and_no_other() -> None:
    """Each arrow of the diagram is a legal move, and each legal move an arrow."""
    arrows = re.findall(r"^ +(\w+) --> (\w+): ([\w ]+)$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert {(source, event(name), target) for source, target, name in arrows} == MOVES


def test_the_table_lists_every_move_and_no_other() -> None:
    """Each row gives the states to which its event leads, before any remark."""
    text = DOCUMENT.read_text(encoding="utf-8").split("| from | event | to | who |")[1].split("\n\n")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    assert {
        (row[0], event(row[1]), target.strip()) for row in rows for target in row[2].split(":")[0].split(",")
    } == MOVES
