"""What travels between release loop and broker: messages of one or more hints, and how each ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from secrets import token_hex
from typing import Protocol

from outbox.releasing.relaying import ReleasedHint
from outbox_schemas.hint import MAX_HINT_JOBS

__all__ = ["Message", "Outcome", "Settled", "Spanned", "Spans", "pack", "per_message"]

# A batch becomes at least about this many messages where it can, so that it spreads over the consumers that
# wait.
SPREAD = 64

# A message's id is this process's random name and a number: it has to differ from every other, no more.
_PROCESS = token_hex(8)
_numbers = count()


class Outcome(StrEnum):
    """The one end of a message that was handed to the publisher."""

    CONFIRMED = "confirmed"
    """The broker has taken it, durably."""
    NACKED = "nacked"
    """The broker refused it, for example because the queue is full."""
    RETURNED = "returned"
    """The queue doesn't exist."""
    CUT_OFF = "cut_off"
    """Nobody knows: the connection was lost, or the answer did not come in time. Or it was never sent."""


class Spanned(Protocol):
    """The span of a message that is traced."""

    @property
    def headers(self) -> dict[str, str]:
        """What the message says of it."""

    def settled(self, outcome: Outcome) -> None:
        """Take in how the message ended."""


class Spans(Protocol):
    """Gives messages their spans."""

    def traced(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages, some of them with a span."""


@dataclass(frozen=True, slots=True)
class Message:
    """One broker message: hints of one queue, under an id that a returned message is recognised by. `ahead`: they go
    ahead of all that are out.
    """

    id: str
    queue: str
    hints: tuple[ReleasedHint, ...]
    ahead: bool = False
    span: Spanned | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """A message and its outcome."""

    message: Message
    outcome: Outcome


def per_message(batch: int, most: int, together: int = 1) -> int:
    """Return how many hints one message carries: 1 where few wait, up to `most` (and 100) under load; `together`, or
    more, where so many may share one in any case.
    """
    return max(1, min(max(batch // SPREAD, together), most, MAX_HINT_JOBS))


def pack(
    queue: str, hints: Sequence[ReleasedHint], most: int, together: int = 1, *, ahead: bool = False
) -> list[Message]:
    """Return the hints as messages, in their order. There are never more messages than hints."""
    size = per_message(len(hints), most, together)
    return [
        Message(f"{_PROCESS}-{next(_numbers):x}", queue, tuple(hints[start : start + size]), ahead)
        for start in range(0, len(hints), size)
    ]
