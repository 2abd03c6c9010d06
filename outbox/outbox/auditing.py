"""Who and why: what every change by a person is recorded with."""

from __future__ import annotations

from outbox_schemas import NameRefused

__all__ = ["ACTOR_CHARACTERS", "REASON_CHARACTERS", "check_actor"]

ACTOR_CHARACTERS = 200
REASON_CHARACTERS = 2000


def check_actor(by: str, reason: str) -> None:
    """Raise `NameRefused` if `by` or `reason` is empty, unprintable or too long."""
    _check("by", by, ACTOR_CHARACTERS)
    _check("reason", reason, REASON_CHARACTERS)


def _check(field: str, value: str, limit: int) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= limit or not value.isprintable():
        raise NameRefused(field, f"must be printable text of 1 to {limit} characters")
