"""Watching for as long as a process has looked at the database so often: that nothing happens in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.waiting import until

LOOKS = 8


def over_looks(gets_on: Any, see: Callable[[], object]) -> None:
    """Call `see` again and again until `gets_on`, which tells whether a process does, has looked `LOOKS` times more."""
    look, taken = gets_on.look, [0]

    def counted(link: Any) -> None:
        look(link)
        taken[0] += 1

    def seen() -> bool:
        see()
        return taken[0] >= LOOKS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gets_on, "look", counted)
        until(seen, every_s=0.03)
