"""Whether anything is known of a name that somebody has typed: one with a slip would be set or paused in vain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from outbox.texts.masking import printable

__all__ = ["NameOf", "UnknownName", "close_to", "unknown_name"]

_MOST = 1000
_CLOSE = 3
_NEAR = 0.7
_SOURCES = {
    "queue": "no job that waits or runs, no consumer and no row",
    "kind": "no job, handler or row",
    "tenant": "no job and no row",
}


class NameOf(StrEnum):
    """What is named."""

    QUEUE = "queue"
    KIND = "kind"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A name of which nothing is known. That may be right: rows may come before the jobs that they are for.

    Attributes:
        what: what it was taken for.
        name: as it was given.
        close: known names that are like it, the likest first; three at most.
    """

    what: NameOf
    name: str
    close: tuple[str, ...]

    def __str__(self) -> str:
        """Return the warning, for people."""
        said = f"{_SOURCES[self.what]} of {self.what} {printable(self.name)} is known"
        if not self.close:
            return said
        return f"{said}; did you mean {' or '.join(repr(printable(one)) for one in self.close)}?"


def unknown_name(read: Callable[[str, dict[str, Any]], Sequence[Any]], what: NameOf, name: str) -> UnknownName | None:
    """Return that nothing is known of a name, with what is like it; None if something is, or nobody can tell.

    `read` runs a statement with its parameters.
    """
    rows = read(f"known_{what}s", {"name": name, "most": _MOST})
    known = [row.name for row in rows]
    # Among so many tenants a kind may be another one's.
    if name in known or any(getattr(row, "cut", False) for row in rows):
        return None
    return UnknownName(what, name, close_to(name, known))


def close_to(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the known names that are like this one, whatever their case. Pure."""
    by_case = {one.casefold(): one for one in known}
    found = get_close_matches(name.casefold()[:200], by_case, n=_CLOSE, cutoff=_NEAR)
    return tuple(by_case[one] for one in found)
