"""Follows a page: makes its trouble, runs its commands section by section, sees whether it ends as it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rehearse.pages import Section, sections
from rehearse.world import Shop
from support.ground import NotInTime

__all__ = ["Play", "follow"]

_SEEN_S = 45.0
READING = ("Look", "Check")
"""Sections that only look: their commands are repeated until they show what is to be seen."""


@dataclass(frozen=True)
class Play:
    """One rehearsal.

    Attributes:
        make: makes the trouble; sets the variables that the page's commands name.
        sees: what a section's commands show, as expressions.
        learns: what the reader copies from a section's output, by the variable that later commands name.
        acts: what a person does elsewhere at the end of a section: mend a handler, start a server.
        ends: waits until the trouble is over, with nothing lost and nothing doubled.
        own_servers: whether it needs servers that nobody else uses after it.
    """

    make: Callable[[Shop], None]
    ends: Callable[[Shop], None]
    sees: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    learns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    acts: Mapping[str, Callable[[Shop], None]] = field(default_factory=dict)
    own_servers: bool = False


def follow(slug: str, play: Play, shop: Shop) -> None:
    """Follow a page to its end. Raises `NotInTime` where it does not go as the page says."""
    page = sections(slug)
    unknown = {*play.sees, *play.learns, *play.acts} - {section.heading for section in page}
    if unknown:
        raise NotInTime(f"{slug} has no section {sorted(unknown)}")
    play.make(shop)
    for section in page:
        shown = _done(section, play, shop)
        for name, expression in play.learns.get(section.heading, {}).items():
            found = re.search(expression, shown)
            if found is None:
                raise NotInTime(f"{section.heading}: nothing to copy as ${name} in\n{shown}")
            shop.variables[name] = found[1]
        if act := play.acts.get(section.heading):
            act(shop)
    play.ends(shop)


def _done(section: Section, play: Play, shop: Shop) -> str:
    wanted = play.sees.get(section.heading, ())
    if section.heading.startswith(READING):
        tries: list[str] = []

        def seen() -> bool:
            codes, shown = _run(section, shop)
            tries[:] = [shown]
            return not any(codes) and not _missing(wanted, shown)

        try:
            shop.until(seen, f"{section.heading}: the commands end with 0 and show {wanted}", _SEEN_S)
        except NotInTime as failure:
            raise NotInTime(f"{failure}\nIt shows:\n{tries[0] if tries else ''}") from None
        return tries[0]
    codes, shown = _run(section, shop)
    if any(codes) or _missing(wanted, shown):
        raise NotInTime(f"{section.heading}: ended with {codes}, lacks {_missing(wanted, shown)} in\n{shown}")
    return shown


def _run(section: Section, shop: Shop) -> tuple[list[int], str]:
    done = [shop.run(f"set -euo pipefail\n{block}") for block in section.blocks]
    return [code for code, _ in done], "\n".join(shown for _, shown in done)


def _missing(wanted: tuple[str, ...], shown: str) -> list[str]:
    return [expression for expression in wanted if not re.search(expression, shown)]
