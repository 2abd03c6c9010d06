"""The renderer: the same bytes everywhere, a real document, and clear refusals."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from statements.accounts import AccountPeriod, Accounts, Line
from statements.renderer import FORMAT_VERSIONS, NotRenderableError, render

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = """
import hashlib, locale
locale.setlocale(locale.LC_ALL, "")
from statements.accounts import Accounts
from statements.renderer import FORMAT_VERSIONS, render
source = Accounts.load().find("acct_91", "2026-05")
print(*[hashlib.sha256(render(source, version)).hexdigest() for version in FORMAT_VERSIONS])
"""


@pytest.fixture
def source() -> AccountPeriod:
    """Return a small account period."""
    lines = (Line(date(2026, 5, 3), "Coffee", Decimal("-3.50")),)
    return AccountPeriod("acct_1", "Zoë", "EUR", "2026-05", Decimal("1234.50"), lines)


@pytest.mark.parametrize(
    "environment",
    [
        {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
        {"TZ": "America/St_Johns", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2", "SOURCE_DATE_EPOCH": "1"},
    ],
)
def test_bytes_are_the_same_in_every_process(accounts: Accounts, environment: dict[str, str]) -> None:
    """Another process in another time zone, locale and hash seed renders exactly the same bytes."""
    source = accounts.find("acct_91", "2026-05")
    here = [hashlib.sha256(render(source, version)).hexdigest() for version in FORMAT_VERSIONS]
    there = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment, "PYTHONPATH": str(EXAMPLES)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert there.stdout.split() == here


def test_document_shows_the_statement(source: AccountPeriod) -> None:
    """The PDF holds the account, the balances and each booking."""
    data = render(source, 2)
    assert data.startswith(b"%PDF-")
    assert data.rstrip().endswith(b"%%EOF")
    for text in (b"acct_1", b"2026-05", b"1,234.50", b"1,231.00", b"Coffee", b"-3.50"):
        assert text in data


def test_every_shipped_period_renders_to_bytes_of_its_own(accounts: Accounts) -> None:
    """No two statements of the shipped input share their bytes."""
    digests = {hashlib.sha256(render(source, version)).digest() for source in accounts for version in FORMAT_VERSIONS}
    assert len(digests) == 150 * len(FORMAT_VERSIONS)


def test_long_tables_go_on_over_pages(source: AccountPeriod) -> None:
    """Hundreds of bookings spread over pages instead of failing."""
    data = render(replace(source, lines=source.lines * 300), 2)
    assert b"Page 5" in data


def test_markup_in_the_input_stays_text(source: AccountPeriod) -> None:
    """A description that looks like markup is shown as it is."""
    line = replace(source.lines[0], description="<b>R&D</b> </para>")
    shown = render(replace(source, lines=(line,)), 1).replace(b") Tj (", b"")  # one run of text, several writes
    assert b"(<b>R&D</b> </para>)" in shown


def test_what_cannot_be_shown_is_refused(source: AccountPeriod) -> None:
    """Text outside of the fonts and an unknown format version are refused, not garbled."""
    with pytest.raises(NotRenderableError, match="fonts"):
        render(replace(source, holder="株式会社"), 1)
    with pytest.raises(NotRenderableError, match="format version"):
        render(source, 99)
