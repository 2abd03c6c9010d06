"""Jobs in every situation, with what is to be said of each: what it waits for, and by which reasons."""

from support.situations.builders import NOW, Situation
from support.situations.held_back import HELD_BACK
from support.situations.under_way import UNDER_WAY

__all__ = ["NOW", "SITUATIONS", "Situation"]

SITUATIONS: list[Situation] = [*HELD_BACK, *UNDER_WAY]
