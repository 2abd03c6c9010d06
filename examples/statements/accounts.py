"""The input: accounts, their periods and lines, read from a CSV file."""

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Self

SHIPPED = Path(__file__).with_name("data") / "accounts.csv"
_COLUMNS = ["account_id", "holder", "currency", "period", "date", "kind", "description", "amount"]
_CENT = Decimal("0.01")


class UnknownAccountError(LookupError):
    """No such account."""


class UnknownPeriodError(LookupError):
    """The account is known, but has nothing for this period."""


@dataclass(frozen=True, slots=True)
class Line:
    """One booking; `amount` is in whole cents of the account's currency, negative for money going out."""

    day: date
    description: str
    amount: Decimal


@dataclass(frozen=True)
class AccountPeriod:
    """Everything that one statement shows."""

    account_id: str
    holder: str
    currency: str
    period: str
    opening_balance: Decimal
    lines: tuple[Line, ...]

    @property
    def closing_balance(self) -> Decimal:
        """Return the opening balance plus every line."""
        return self.opening_balance + sum((line.amount for line in self.lines), Decimal(0))

    @cached_property
    def sha256(self) -> str:
        """Return the digest of the content; the layout of the CSV file does not enter it."""
        content = [self.account_id, self.holder, self.currency, self.period, str(self.opening_balance)]
        lines = [[line.day.isoformat(), line.description, str(line.amount)] for line in self.lines]
        return hashlib.sha256(json.dumps([content, lines]).encode()).hexdigest()


class Accounts:
    """All account periods, held in memory; immutable after it is loaded."""

    def __init__(self, periods: Iterable[AccountPeriod]) -> None:
        self._periods = {(item.account_id, item.period): item for item in periods}
        self._account_ids = {account_id for account_id, _ in self._periods}

    @classmethod
    def load(cls, path: Path = SHIPPED) -> Self:
        """Read a CSV file; rows of one account period stand together, its opening balance first.

        Raises ValueError with the line number for anything that is not well formed.
        """
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            if reader.fieldnames != _COLUMNS:
                raise ValueError(f"{path.name}: the header must be {','.join(_COLUMNS)}")
            rows = [(reader.line_num, row) for row in reader]
        periods = [
            _account_period(path.name, list(group))
            for _, group in groupby(rows, key=lambda item: (item[1]["account_id"], item[1]["period"]))
        ]
        accounts = cls(periods)
        if len(accounts) != len(periods):
            raise ValueError(f"{path.name}: the rows of one account and period must stand together")
        return accounts

    @classmethod
    def from_environment(cls) -> Self:
        """Read the file that STATEMENTS_ACCOUNTS names, or the shipped one."""
        return cls.load(Path(os.environ.get("STATEMENTS_ACCOUNTS") or SHIPPED))

    def __len__(self) -> int:
        return len(self._periods)

    def __iter__(self) -> Iterator[AccountPeriod]:
        return iter(self._periods.values())

    def find(self, account_id: str, period: str) -> AccountPeriod:
        """Return one account period.

        Raises UnknownAccountError or UnknownPeriodError.
        """
        found = self._periods.get((account_id, period))
        if found is not None:
            return found
        if account_id not in self._account_ids:
            raise UnknownAccountError(f"account {account_id!r} is not known")
        raise UnknownPeriodError(f"account {account_id!r} has no period {period!r}")


def _account_period(name: str, rows: list[tuple[int, dict[str, str]]]) -> AccountPeriod:
    number, first = rows[0]
    if first["kind"] != "opening":
        raise ValueError(f"{name}:{number}: a period starts with its opening balance")
    holder, currency = first["holder"], first["currency"]
    if any((row["holder"], row["currency"]) != (holder, currency) for _, row in rows):
        raise ValueError(f"{name}:{number}: holder and currency differ within one period")
    return AccountPeriod(
        account_id=first["account_id"],
        holder=holder,
        currency=currency,
        period=first["period"],
        opening_balance=_amount(name, number, first["amount"]),
        lines=tuple(_line(name, number, row) for number, row in rows[1:]),
    )


def _line(name: str, number: int, row: dict[str, str]) -> Line:
    if row["kind"] != "entry":
        raise ValueError(f"{name}:{number}: kind must be 'entry' after the opening balance")
    try:
        day = date.fromisoformat(row["date"])
    except ValueError as error:
        raise ValueError(f"{name}:{number}: {row['date']!r} is not a date") from error
    if f"{day:%Y-%m}" != row["period"]:
        raise ValueError(f"{name}:{number}: {row['date']} is outside of {row['period']}")
    return Line(day, row["description"], _amount(name, number, row["amount"]))


def _amount(name: str, number: int, text: str) -> Decimal:
    try:
        amount = Decimal(text)
        exact = amount.is_finite() and amount == amount.quantize(_CENT)
    except (InvalidOperation, TypeError) as error:
        raise ValueError(f"{name}:{number}: {text!r} is not an amount") from error
    if not exact:
        raise ValueError(f"{name}:{number}: {text!r} is not in whole cents")
    return amount.quantize(_CENT)
