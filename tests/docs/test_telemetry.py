"""The page of telemetry is that of the code."""

from __future__ import annotations

from support.telemetry_page import PAGE, page


def test_the_page_of_telemetry_is_that_of_the_code() -> None:
    """Names, units, labels and cardinality; where it differs, make it anew."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/support/telemetry_page.py"
