"""Bounds for the names that travel through SQL, AMQP, logs and terminals.

They are checked once, at the door, so that nothing later can choke on them: an AMQP queue name holds 255 bytes, a
B-tree entry about 2,700, and a control character in a name is an attack on whoever lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from outbox_schemas.errors import NameRefused

__all__ = [
    "check_choice",
    "check_filter",
    "check_flag",
    "check_id",
    "check_instant",
    "check_is",
    "check_key",
    "check_name",
    "check_priority",
    "check_tenant",
    "nature_of",
]

T = TypeVar("T", bound=StrEnum)
C = TypeVar("C")

NAME_BYTES = 100
TENANT_BYTES = 200
KEY_BYTES = 512
PRIORITY_LIMIT = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{0,19}")
_LONG = 10**15
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=-]*")
# C0, DEL and C1 controls, surrogates, and the line and bidirectional controls that can forge a log line.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# What timestamptz, Python's datetime in any zone, and interval arithmetic on both can all hold.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def check_name(field: str, value: object) -> str:
    """Return `value` if it may name a kind or a queue, else raise `NameRefused`."""
    return _check(field, value, _NAME, NAME_BYTES, "letters, digits and . _ - (a letter or digit first)")


def check_tenant(value: object) -> str:
    """Return `value` if it may name a tenant, else raise `NameRefused`."""
    return _check(
        "tenant", value, _TENANT, TENANT_BYTES, "letters, digits and . _ : / @ + = - (a letter or digit first)"
    )


def check_filter(kind: object, queue: object, tenant: object) -> None:
    """Check the names by which jobs are chosen, those that are given (not None). Raises `NameRefused`."""
    if kind is not None:
        check_name("kind", kind)
    if queue is not None:
        check_name("queue", queue)
    if tenant is not None:
        check_tenant(tenant)


def check_key(value: object, field: str = "logical_key") -> str:
    """Return `value` if it may be a logical key, or a subject: any printable text of 1 to 512 UTF-8 bytes.

    They are compared byte by byte. No Unicode normalisation happens: a composed and a decomposed é make two keys.
    """
    if not isinstance(value, str):
        raise NameRefused(field, f"must be text, not {type(value).__name__}")
    if 1 <= len(value) <= KEY_BYTES and value.isascii() and value.isprintable():
        return value
    found = _UNPRINTABLE.search(value)
    if found:
        raise NameRefused(
            field,
            f"has the unprintable character U+{ord(found.group()):04X} at position {found.start()}; use printable text",
        )
    size = len(value.encode())
    if not 1 <= size <= KEY_BYTES:
        raise NameRefused(field, f"has {size} bytes; 1 to {KEY_BYTES} are allowed: hash what is longer")
    return value


def check_priority(value: object, field: str = "priority") -> int:
    """Return `value` if it is a whole number from -100 to 100 (higher goes first), else raise `NameRefused`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise NameRefused(field, f"must be a whole number, not {type(value).__name__}")
    if abs(value) > PRIORITY_LIMIT:
        raise NameRefused(field, f"must be from {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}")
    return value


def check_choice(field: str, value: object, among: Iterable[T], but: str = "") -> T:
    """Return the one of some members of an enumeration that `value` is, or names, else raise `NameRefused`.

    Args:
        field: what the caller calls it, for the error.
        value: a member, or its text; both mean the same everywhere.
        among: what there is to choose from.
        but: what is said besides: why something else that one might expect is not among them.
    """
    members = tuple(among)
    for member in members:
        if isinstance(value, str) and member == value:
            return member
    raise NameRefused(field, f"must be one of {', '.join(members)}, not {nature_of(value)}{but}")


def nature_of(value: object) -> str:
    """Return what a refused value is, for an error: a number, or a short plain word, as it stands, of all else only its
    type or its length, since it may be what nobody should read.
    """
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < _LONG):
        return str(value)
    if not isinstance(value, str):
        return type(value).__name__
    return repr(str(value)) if _WORD.fullmatch(value) else f"a text of {len(value)} characters"


def check_flag(field: str, value: object) -> bool:
    """Return `value` if it is True or False, else raise `NameRefused`: the text "false" would count as yes."""
    if not isinstance(value, bool):
        raise NameRefused(field, f"must be True or False, not {nature_of(value)}")
    return value


def check_is(field: str, value: object, kind: type[C]) -> C | None:
    """Return `value` if it is of a class, or None, else raise `NameRefused`."""
    if value is None or isinstance(value, kind):
        return value
    raise NameRefused(field, f"must be a {kind.__name__}, not {nature_of(value)}")


def check_id(field: str, value: object) -> UUID:
    """Return `value` if it is a UUID, else raise `NameRefused`: PostgreSQL would end the transaction over it."""
    if not isinstance(value, UUID):
        has_id = isinstance(getattr(value, "id", None), UUID)
        remedy = "; try uuid.UUID(text)" if isinstance(value, str) else "; give its id" if has_id else ""
        raise NameRefused(field, f"must be a UUID, not {type(value).__name__}{remedy}")
    return value


def check_instant(field: str, value: object) -> datetime:
    """Return `value` in UTC if it is an aware datetime of the years 1970 to 8999, else raise `NameRefused`."""
    if not isinstance(value, datetime):
        raise NameRefused(field, f"must be an aware datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise NameRefused(field, "is a naive datetime; give it a time zone, for example datetime.now(UTC)")
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        instant = None
    if instant is None or not _EARLIEST <= instant < _LATEST:
        raise NameRefused(field, "is outside the years 1970 to 8999")
    return instant


def _check(field: str, value: object, pattern: re.Pattern[str], limit: int, allowed: str) -> str:
    if value is None or value == "":
        raise NameRefused(field, f"is missing; give 1 to {limit} characters: {allowed}")
    if not isinstance(value, str):
        raise NameRefused(field, f"must be text, not {type(value).__name__}")
    if len(value) > limit:
        raise NameRefused(field, f"has {len(value)} characters; 1 to {limit} are allowed")
    if not pattern.fullmatch(value):
        raise NameRefused(field, f"may hold only ASCII {allowed}")
    return value
