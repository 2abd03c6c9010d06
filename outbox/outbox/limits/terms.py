"""The terms of limits: what may be said of a queue and of a tenant, within which bounds, and how a change is merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

from outbox_schemas import NameRefused
from outbox_schemas.names import nature_of

__all__ = ["KEEP", "Keep", "QueueLimits", "TenantLimits", "check_given", "check_terms", "merged"]

MOST = 1_000_000
SLOWEST = 0.0001

_NUMBERS = {"max_running": 0, "tenant_max_running": 1, "burst": 1, "tenant_burst": 1, "weight": 1, "runway": 1}
_RATES = {"rate_per_s": "burst", "tenant_rate_per_s": "tenant_burst"}


class Keep(Enum):
    """Stands for: as it is."""

    KEEP = "keep"


KEEP: Final[Literal[Keep.KEEP]] = Keep.KEEP


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits of a queue; None: no such limit.

    Attributes:
        queue: its name.
        max_running: how many of its jobs may run at the same time; 0: nothing starts.
        tenant_max_running: how many of each tenant, unless the tenant has a limit of its own.
        rate_per_s, burst: so many may start in a second, and so many at once.
        tenant_rate_per_s, tenant_burst: the same for each tenant that has no rate of its own.
        runway: how many of its hints relays let be out and unclaimed at most, instead of their own setting.
        updated_at: when they were last changed, by the database's clock; None if nobody ever has.
    """

    queue: str
    max_running: int | None = None
    tenant_max_running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None
    tenant_rate_per_s: float | None = None
    tenant_burst: int | None = None
    runway: int | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """A tenant's own limits in a queue; None: what the queue gives to each.

    Attributes:
        queue, tenant: whose.
        max_running: how many of its jobs in this queue may run at the same time; 0: nothing starts.
        rate_per_s, burst: so many may start in a second, and so many at once.
        weight: its share where it competes with others, 1 if nobody has said otherwise.
        updated_at: when they were last changed, by the database's clock; None if nobody ever has.
    """

    queue: str
    tenant: str
    max_running: int | None = None
    rate_per_s: float | None = None
    burst: int | None = None
    weight: int = 1
    updated_at: datetime | None = None


def check_terms(terms: Mapping[str, Any]) -> None:
    """Raise `NameRefused` unless each of these, of those that are given, is within its bounds."""
    for field, value in terms.items():
        if value is KEEP or (value is None and field != "weight"):
            continue
        if field in _RATES:
            _check_rate(field, value)
        else:
            _check_number(field, value, _NUMBERS[field])


def check_given(terms: Mapping[str, Any]) -> None:
    """Raise `NameRefused` unless one of these is given at least: to be asked for nothing is a slip."""
    if all(value is KEEP for value in terms.values()):
        first, *others = terms
        raise NameRefused(first, f"is missing, and so are {', '.join(others)}; give one at least, None to take it away")


def merged(before: Mapping[str, Any], terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms after a change. A rate without a burst has one of 1; where a rate goes, so does its burst.

    Raises:
        NameRefused: a burst is given, and there is no rate.
    """
    after = {field: before[field] if value is KEEP else value for field, value in terms.items()}
    for rate, burst in _RATES.items():
        if rate not in after:
            continue
        if after[rate] is None:
            if terms[burst] is not KEEP and terms[burst] is not None:
                raise NameRefused(burst, f"means nothing without {rate}, which is not set: give both, or neither")
            after[burst] = None
        elif after[burst] is None:
            after[burst] = 1
    return after


def _check_number(field: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        none = "" if field == "weight" else ", or None for no limit"
        raise NameRefused(field, f"must be a whole number{none}, not {nature_of(value)}")
    if not least <= value <= MOST:
        what = "; to let nothing start, pause the tenant, or set its own max_running to 0"
        raise NameRefused(
            field,
            f"must be from {least} to {MOST:,}, not {nature_of(value)}"
            f"{what if field == 'tenant_max_running' and value == 0 else ''}",
        )


def _check_rate(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NameRefused(field, f"must be a number of jobs a second, or None for no rate, not {nature_of(value)}")
    if not SLOWEST <= value <= MOST:  # nor is what is no number
        how = "pause the tenant, or set its own max_running to 0" if field.startswith("tenant_") else "max_running = 0"
        raise NameRefused(
            field, f"must be from {SLOWEST} to {MOST:,} a second, not {nature_of(value)}; to let nothing start: {how}"
        )
