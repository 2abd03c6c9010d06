"""What a handler class declares of the process that its attempts run in. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from outbox_schemas import HandlerError
from outbox_schemas.names import nature_of

__all__ = ["DEFAULTS", "MIB", "Terms", "terms_of"]

MIB = 1024 * 1024
# A child with the product, a driver and an ORM loaded takes about half of this.
_LEAST_MEMORY = 128 * MIB
_LEAST_OUTPUT = 1024
_MOST_BYTES = 1 << 40
_MOST_OUTPUT = 1 << 30
_MOST_JOBS = 1_000_000
_LONGEST_AGE = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits of one child process; None is no limit."""

    memory_bytes: int | None
    cpu_s: int | None
    output_bytes: int
    max_jobs: int
    max_age_s: float


DEFAULTS: dict[str, Any] = {
    "memory_limit": None,
    "cpu_limit": None,
    "output_limit": 8 * MIB,
    "max_jobs_per_child": 1000,
    "max_child_age": timedelta(hours=1),
}
"""The class attributes that mean something for a handler in a process alone."""


def terms_of(cls: type[Any]) -> Terms | None:
    """Return the terms that a handler class declares, None if its attempts run on threads.

    Raises:
        HandlerError: an attribute is of the wrong type or out of bounds, or means nothing without `isolation`.
    """
    name = cls.__qualname__
    if cls.isolation not in ("thread", "process"):  # what can't be hashed is in no set
        raise HandlerError(f'{name}.isolation must be "thread" or "process", not {nature_of(cls.isolation)}')
    if cls.isolation == "thread":
        idle = [attribute for attribute, usual in DEFAULTS.items() if getattr(cls, attribute) != usual]
        if idle:
            raise HandlerError(f'{name}.{idle[0]} limits nothing on a thread; add isolation = "process"')
        return None
    cpu_limit = _duration(cls, "cpu_limit", timedelta(seconds=1), timedelta(days=1), optional=True)
    max_age = _duration(cls, "max_child_age", timedelta(seconds=1), _LONGEST_AGE)
    return Terms(
        memory_bytes=_count(cls, "memory_limit", _LEAST_MEMORY, _MOST_BYTES, optional=True),
        cpu_s=None if cpu_limit is None else math.ceil(cpu_limit.total_seconds()),
        output_bytes=_count(cls, "output_limit", _LEAST_OUTPUT, _MOST_OUTPUT) or 0,
        max_jobs=_count(cls, "max_jobs_per_child", 1, _MOST_JOBS) or 1,
        max_age_s=0.0 if max_age is None else max_age.total_seconds(),
    )


def _count(cls: type[Any], attribute: str, least: int, most: int, *, optional: bool = False) -> int | None:
    value = getattr(cls, attribute)
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise HandlerError(
            f"{cls.__qualname__}.{attribute} must be a whole number from {least} to {most}, not {nature_of(value)}"
        )
    return value


def _duration(
    cls: type[Any], attribute: str, least: timedelta, most: timedelta, *, optional: bool = False
) -> timedelta | None:
    value = getattr(cls, attribute)
    if value is None and optional:
        return None
    if not isinstance(value, timedelta) or not least <= value <= most:
        given = value if isinstance(value, timedelta) else nature_of(value)
        raise HandlerError(f"{cls.__qualname__}.{attribute} must be a timedelta from {least} to {most}, not {given}")
    return value
