"""Concurrency keys: what a payload class may say of them, and what is kept of one job's."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from outbox_schemas.errors import NameRefused, PayloadError
from outbox_schemas.names import check_flag, check_key, check_name, nature_of

__all__ = ["MOST", "AfterFailure", "KeyLimit", "check_key_terms", "checked_limit", "given_limit"]

AfterFailure = Literal["skip", "block"]
"""What a failed job means to those behind it in the order of its key."""
MOST = 1000
"""The most jobs of one key that may be allowed at once."""


class KeyLimit(NamedTuple):
    """One job's concurrency key and its terms, checked. Its scope is (tenant, group, key).

    rule: "" where jobs run in any order; "s" or "b" where they run in the order of submission, and one that has failed
    is skipped, or blocks.
    """

    group: str
    key: str
    most: int
    rule: str


def check_key_terms(cls: Any, *, keyed: bool) -> None:
    """Check what a payload class says of concurrency keys, when it is defined. `keyed`: it has a `limit_key` method.

    Raises:
        PayloadError: a term is out of bounds, or contradicts another one.
        NameRefused: the group can't be a name.
    """
    name = cls.__name__
    most, group = cls.limit_max, cls.limit_group
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST:
        raise PayloadError(f"{name}.limit_max", f"must be a whole number from 1 to {MOST}")
    if not isinstance(cls.ordered, bool):
        raise PayloadError(f"{name}.ordered", "must be True or False")
    if cls.after_failure not in ("skip", "block"):
        raise PayloadError(f"{name}.after_failure", 'must be "skip" or "block"')
    if group is not None:
        check_name(f"{name}.limit_group", group)
    if cls.ordered and most != 1:
        raise PayloadError(
            f"{name}.ordered", f"runs the jobs of a key one after the other, so limit_max must be 1, not {most}"
        )
    if cls.after_failure == "block" and not cls.ordered:
        raise PayloadError(f"{name}.after_failure", 'can be "block" only where ordered = True')
    if not keyed and (most != 1 or cls.ordered or group is not None):
        raise PayloadError(
            f"{name}.limit_key", "is not defined: without it, limit_max, limit_group and ordered say nothing"
        )


def given_limit(key: object, *, group: object, most: object, ordered: object, after_failure: object) -> KeyLimit:
    """Return a concurrency key whose terms come from no payload class.

    Raises:
        NameRefused: a term is out of bounds, or contradicts another one.
    """
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST:
        raise NameRefused("limit_max", f"must be a whole number from 1 to {MOST}, not {nature_of(most)}")
    check_flag("ordered", ordered)
    if after_failure not in ("skip", "block"):
        raise NameRefused("after_failure", f'must be "skip" or "block", not {nature_of(after_failure)}')
    if ordered and most != 1:
        raise NameRefused("limit_max", f"must be 1 where ordered is given, not {most}: such jobs run one by one")
    if after_failure == "block" and not ordered:
        raise NameRefused("after_failure", 'can be "block" only where ordered is given')
    rule = str(after_failure)[0] if ordered else ""
    return KeyLimit(check_name("limit_group", group), check_key(key, "limit_key"), int(most), rule)


def checked_limit(payload: Any) -> KeyLimit | None:
    """Return a payload's concurrency key within its bounds; None if it has none.

    Raises:
        NameRefused: the key is no printable text of 1 to 512 bytes.
    """
    key = payload.limit_key()
    if key is None:
        return None
    cls = type(payload)
    rule = cls.after_failure[0] if cls.ordered else ""
    return KeyLimit(cls.limit_group or cls.kind, check_key(key, "limit_key"), int(cls.limit_max), rule)
