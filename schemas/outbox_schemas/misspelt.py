"""Class attributes that look like a misspelt setting: what nobody reads would be as good as not set, without a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

__all__ = ["misspelt"]

# How alike two names must be. `max_runtme`, `verison`, `aply` and `handel` are; people's own names, such as `release`
# beside `lease`, or `upload` beside `load`, are not.
_NEAR_SETTING = 0.85
_NEAR_METHOD = 0.82


def misspelt(cls: type, base: type) -> tuple[str, str] | None:
    """Return the first public attribute that a class adds to what its base declares and that most likely is meant to
    be one of the base's (as far as this project declares it), together with that one; None if there is none.

    Methods are only compared with methods, and one that begins with a known name (`handle_row`) is taken for the
    user's own.
    """
    ours = [one for one in base.__mro__ if one.__module__.partition(".")[0].startswith("outbox_")]
    methods = [name for name in _public(ours) if callable(getattr(base, name, None))]
    settings = [name for name in _public(ours) if name not in methods]
    for name, value in _added(cls, base):
        if isinstance(value, property):
            continue
        if callable(value) or isinstance(value, classmethod | staticmethod):
            near = _near(name, methods, _NEAR_METHOD)
            if near is not None and not name.startswith(near):
                return name, near
        elif (near := _near(name, settings, _NEAR_SETTING)) is not None:
            return name, near
    return None


def _near(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """Return the known name that is most alike. A slip is seldom in a word's first letter: `object_key` is none for
    `subject_key`.
    """
    for found in get_close_matches(name, known, n=3, cutoff=cutoff):
        ours, theirs = name.split("_"), found.split("_")
        if len(ours) != len(theirs) or all(one[:1] == other[:1] for one, other in zip(ours, theirs, strict=True)):
            return found
    return None


def _public(owners: Iterable[type]) -> list[str]:
    declared = {name for owner in owners for name in [*vars(owner), *vars(owner).get("__annotations__", {})]}
    return sorted(name for name in declared if not name.startswith("_"))


def _added(cls: type, base: type) -> Iterator[tuple[str, Any]]:
    known = set(_public(base.__mro__))
    for owner in cls.__mro__:
        if owner not in base.__mro__:
            yield from ((n, v) for n, v in vars(owner).items() if not n.startswith("_") and n not in known)
