"""The shipped input and the reader that guards it."""

from decimal import Decimal
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from statements.accounts import Accounts, UnknownAccountError, UnknownPeriodError

HEADER = "account_id,holder,currency,period,date,kind,description,amount\n"
OPENING = "acct_1,Ada,EUR,2026-01,2026-01-01,opening,Opening balance,10.00\n"
ENTRY = "acct_1,Ada,EUR,2026-01,2026-01-03,entry,Coffee,-3.50\n"


def _write(folder: Path, text: str) -> Path:
    path = folder / "accounts.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_balances_carry_over(accounts: Accounts) -> None:
    """Each period of the shipped file opens with what the one before closed with."""
    assert len(accounts) == 150
    for _, group in groupby(accounts, key=lambda item: item.account_id):
        for before, after in pairwise(group):
            assert before.period < after.period
            assert before.closing_balance == after.opening_balance


def test_balance_is_exact(tmp_path: Path) -> None:
    """Amounts are decimals, so a closing balance has no rounding error."""
    found = Accounts.load(_write(tmp_path, HEADER + OPENING + ENTRY)).find("acct_1", "2026-01")
    assert found.closing_balance == Decimal("6.50")


def test_digest_covers_content_and_not_layout(tmp_path: Path) -> None:
    """The digest ignores quoting and trailing zeros, and notices any changed amount."""
    base = Accounts.load(_write(tmp_path, HEADER + OPENING + ENTRY)).find("acct_1", "2026-01")
    quoted = ENTRY.replace("Coffee", '"Coffee"').replace("-3.50", "-3.5")
    same = Accounts.load(_write(tmp_path, HEADER + OPENING + quoted)).find("acct_1", "2026-01")
    changed = ENTRY.replace("-3.50", "-3.51")
    other = Accounts.load(_write(tmp_path, HEADER + OPENING + changed)).find("acct_1", "2026-01")
    assert same.sha256 == base.sha256
    assert other.sha256 != base.sha256


def test_unknown_account_and_period_are_told_apart(accounts: Accounts) -> None:
    """A caller learns whether the account or only the period is unknown."""
    with pytest.raises(UnknownAccountError):
        accounts.find("acct_0", "2026-05")
    with pytest.raises(UnknownPeriodError):
        accounts.find("acct_91", "1999-01")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("account,period\n", "header"),
        (HEADER + ENTRY, "opening balance"),
        (HEADER + OPENING + OPENING, "kind"),
        (HEADER + OPENING + ENTRY.replace("-3.50", "1e400000000"), "amount"),
        (HEADER + OPENING + ENTRY.replace("-3.50", "NaN"), "whole cents"),
        (HEADER + OPENING + ENTRY.replace("-3.50", "0.001"), "whole cents"),
        (HEADER + OPENING + ENTRY.replace("2026-01-03", "2026-02-03"), "outside"),
        (HEADER + OPENING + ENTRY.replace("2026-01-03", "2026-01-33"), "not a date"),
        (HEADER + OPENING + ENTRY.replace("EUR", "USD"), "differ"),
        (HEADER + OPENING + OPENING.replace("acct_1", "acct_2") + OPENING, "stand together"),
    ],
)
def test_malformed_input_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """A file that is not well formed is refused as a whole, with the reason."""
    with pytest.raises(ValueError, match=message):
        Accounts.load(_write(tmp_path, text))
