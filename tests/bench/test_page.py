"""The page shows what was measured, and says so where nothing was."""

from __future__ import annotations

from pathlib import Path

from measure.figures import Figures
from measure.page import write
from measure.tables import cell, number
from measure.targets import OURS

_MACHINE = {
    "cores": 2,
    "processor": "a processor",
    "memory_gib": 8,
    "system": "Linux 6",
    "architecture": "x86_64",
    "python": "3.11.7",
    "postgresql": "16",
    "rabbitmq": "4",
}


def test_a_page_without_figures_says_that_nothing_was_measured(tmp_path: Path) -> None:
    """A machine of a new shape begins with an empty page, not with another one's figures."""
    text = write(tmp_path, {}).read_text(encoding="utf-8")
    assert "Not measured yet" in text
    assert "$" not in text


def test_a_page_shows_contenders_limits_and_settings(tmp_path: Path) -> None:
    """Figures, whether limits were met, versions and settings stand in one place."""
    figures = Figures()
    for round_, (ours, theirs) in enumerate([(1000.0, 500.0), (1100.0, 500.0)]):
        figures.add("drain_1", OURS, round_, ours)
        figures.add("drain_1", "awa", round_, theirs)
    suite = {
        "date": "2026-01-01",
        "runs": 2,
        "machine": _MACHINE,
        "contenders": {"awa": {"versions": "awa-pg 1", "settings": "best", "lost or doubled": "drain: 1 job"}},
        "figures": figures.to_json(),
    }
    text = write(tmp_path, {"peers": suite}).read_text(encoding="utf-8")
    assert "| outbox-relay | 1,050 (1,000–1,100) |" in text  # noqa: RUF001
    assert "| drain, one consumer process / Awa | 2.10 (2.00–2.20) | ≥ 1 met | – |" in text  # noqa: RUF001
    assert "| awa | awa-pg 1 | best **(drain: 1 job)** |" in text


def test_numbers_have_as_many_digits_as_they_deserve() -> None:
    """Thousands are whole, small ratios have two decimals, and a gap is a dash."""
    assert [number(value) for value in (12345.6, 56.78, 1.234)] == ["12,346", "56.8", "1.23"]
    assert cell(None) == "–"  # noqa: RUF001
