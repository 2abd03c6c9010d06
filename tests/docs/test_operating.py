"""The operating guide quotes what the program really says."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox.database.trouble import AGAIN, Fault
from outbox.explaining.reasons import NO_HANDLER

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [fault.value.partition(";")[0] for fault in Fault] + [AGAIN, NO_HANDLER],
)
def test_events_are_quoted_as_they_are(text: str) -> None:
    """Each kind of database trouble stands in the guide in the log's own words."""
    assert text in GUIDE
