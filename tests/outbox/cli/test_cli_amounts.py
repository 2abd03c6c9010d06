"""Numbers on the command line are what they look like."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("text", ["5_0", "\u0665", "1e3", "0x10", "", "nan", "9" * 30])
def test_what_is_no_plain_whole_number_is_refused(run: Any, text: str) -> None:
    """A typo never becomes a limit."""
    code, _, complaint = run("queues", "set", "mail", "--max-running", text, "--by", "ada", "--reason", "b")
    assert code == 2
    assert "--max-running" in complaint


def test_help_shows_no_limit_where_there_is_none(run: Any) -> None:
    """An option without bounds tells of none."""
    shown = run("schedules", "add", "--help")[1] + run("queues", "bound", "--help")[1]
    assert "--priority" in shown
    assert "None]" not in shown
