"""What a handler declares in times, counts and names, and whether it holds together. Said by a class, or by one of its
objects for itself: whoever makes handlers from settings is checked like everybody else. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from outbox.leases.leasing import Ability
from outbox_consumer.contract.isolation_terms import DEFAULTS
from outbox_consumer.failing.retry import RetryPolicy
from outbox_schemas import HandlerError
from outbox_schemas.names import nature_of

__all__ = ["abilities_of", "check_object", "check_terms"]

_SHORTEST_LEASE = timedelta(seconds=1)
_LONGEST_LEASE = timedelta(days=1)
_TYPES: tuple[tuple[str, Any, str], ...] = (
    ("retry", RetryPolicy, "a RetryPolicy, for example RetryPolicy(max_attempts=5)"),
    ("lease", timedelta, "a timedelta, for example timedelta(seconds=60)"),
    ("max_runtime", timedelta, "a timedelta, for example timedelta(hours=1)"),
    ("progress_deadline", timedelta | None, "a timedelta or None, for example timedelta(minutes=5)"),
    ("versions", Collection, "a collection of whole numbers, for example (1, 2)"),
    ("handler_version", str, 'a text, for example "2"'),
    ("abstract", bool, "True or False"),
)
# Where and for what it runs is settled before there is an object.
_OF_THE_CLASS = ("payload_type", "abstract", "isolation", *DEFAULTS)


def check_terms(name: str, said: Any) -> None:
    """Refuse what is of the wrong type, out of bounds, or doesn't fit together.

    Args:
        name: the class's, for the message.
        said: the class, or one of its objects.
    """
    for attribute, kind, text in _TYPES:
        value = getattr(said, attribute)
        if not isinstance(value, kind):
            raise HandlerError(f"{name}.{attribute} must be {text}; it is of type {type(value).__name__}")
    if not _SHORTEST_LEASE <= said.lease <= _LONGEST_LEASE:
        raise HandlerError(f"{name}.lease must be from 1 second to 1 day")
    if said.max_runtime < said.lease:
        raise HandlerError(
            f"{name}.max_runtime ({said.max_runtime}) must be at least its lease ({said.lease}); lower the lease, too"
        )
    if said.progress_deadline is not None and not _SHORTEST_LEASE <= said.progress_deadline <= said.max_runtime:
        raise HandlerError(f"{name}.progress_deadline must be from 1 second to its max_runtime ({said.max_runtime})")
    for version in said.versions:
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise HandlerError(f"{name}.versions must be whole numbers from 1, not {nature_of(version)}")
    if not said.handler_version.isprintable() or not 1 <= len(said.handler_version) <= 100:
        raise HandlerError(f"{name}.handler_version must be printable text of 1 to 100 characters")
    _check_key_lifetime(name, said)


def check_object(handler: Any) -> None:
    """Check a handler as it is to run: what it says itself, and what its class says by now."""
    name = type(handler).__qualname__
    own = next((attribute for attribute in _OF_THE_CLASS if attribute in getattr(handler, "__dict__", {})), None)
    if own is not None:
        raise HandlerError(f"{name}.{own} is the class's to say, not an object's; set it in the class's body")
    check_terms(name, handler)


def abilities_of(said: Any) -> list[Ability]:
    """Return what a consumer with this handler, or a handler of this class, can claim."""
    versions = sorted(set(said.versions or said.payload_type.readable_versions()))
    return [
        Ability(
            said.payload_type.kind,
            version,
            said.lease.total_seconds(),
            said.retry.max_attempts,
            said.handler_version,
            math.ceil(said.retry.max_age.total_seconds()),
        )
        for version in versions
    ]


def _check_key_lifetime(name: str, said: Any) -> None:
    """Refuse retries that may send an effect after the other side has forgotten its key: it would happen twice."""
    lifetime = said.effect_key_lifetime
    if lifetime is None:
        return
    where = f"{name}.effect_key_lifetime"
    if not isinstance(lifetime, timedelta):
        raise HandlerError(f"{where} must be a timedelta or None; it is of type {type(lifetime).__name__}")
    longest = said.retry.longest_course(said.max_runtime)
    if lifetime < longest:
        raise HandlerError(
            f"{where} ({lifetime}) is shorter than its retries can take ({longest}); lower max_age of its "
            "RetryPolicy, or max_runtime"
        )
