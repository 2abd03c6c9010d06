"""Output of the commands: plain tables that can't be garbled, and JSON with stable forms."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

import pytest

from outbox.cli.output import instant, table, to_json
from outbox_schemas import ErrorView, JobState

INSTANT = datetime(2026, 3, 1, 13, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=1)))


@dataclass(frozen=True)
class Row:
    """A row with what commands show."""

    id: UUID
    at: datetime


def test_json_forms() -> None:
    """Views, instants, spans, ids and enums have one form each, in the given order, in ASCII."""
    data = {
        "row": Row(UUID(int=5), INSTANT),
        "state": JobState.READY,
        "span": timedelta(minutes=1),
        "error": ErrorView(error_class="terminal", code="c", message="é\x1b\u202e"),
        "map": MappingProxyType({"a": None}),
        "path": Path("x"),
    }
    shown = to_json(data)
    assert shown.isascii()
    assert "\x1b" not in shown
    assert json.loads(shown) == {
        "row": {"id": "00000000-0000-0000-0000-000000000005", "at": "2026-03-01T12:00:00.250000Z"},
        "state": "ready",
        "span": 60.0,
        "error": {"error_class": "terminal", "code": "c", "message": "é\x1b\u202e"},
        "map": {"a": None},
        "path": "x",
    }
    assert list(json.loads(shown)) == list(data)


def test_json_refuses_what_has_no_form() -> None:
    """A forgotten type is an error, not a silent string."""
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_json(object())
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(float("nan"))


def test_table_columns_line_up() -> None:
    """Columns are as wide as their widest cell, numbers stand right, wide characters count double."""
    lines = table(["NAME", "COUNT"], [["a", 5], ["漢字x", 1000], [None, 0]])
    assert lines == ["NAME   COUNT", "a          5", "漢字x   1000", "-          0"]
    assert table(["NAME"], []) == ["NAME"]


def test_table_cells_cant_drive_a_terminal() -> None:
    """Escape sequences, line breaks and overrides are stripped, and long cells cut."""
    lines = table(["A", "B"], [["x\x1b[2J\ny\u202e", "z" * 500]])
    assert len(lines) == 2
    assert "\x1b" not in lines[1]
    assert "\u202e" not in lines[1]
    assert lines[1].endswith("…")
    assert len(lines[1]) < 90


def test_instants_name_their_zone() -> None:
    """People read UTC, to the second."""
    assert instant(INSTANT) == "2026-03-01 12:00:00Z"
    assert instant(INSTANT.astimezone(UTC)) == instant(INSTANT)
    assert instant(None) == "-"
