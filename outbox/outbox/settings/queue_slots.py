"""How a consumer's queues are written: `mail`, or `mail=20` for a queue with slots of its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outbox.errors import NameRefused
from outbox_schemas.names import check_name

__all__ = ["MOST_SLOTS", "QueueSlots", "read_queue", "read_queues"]

MOST_SLOTS = 1000


class QueueSlots(NamedTuple):
    """A queue that a consumer works for. `slots`: how many are reserved for it; None: it shares `concurrency`."""

    name: str
    slots: int | None = None

    def __str__(self) -> str:
        return self.name if self.slots is None else f"{self.name}={self.slots}"


def read_queue(text: str) -> QueueSlots:
    """Return what `mail` or `mail=20` says; blanks around the sign are allowed. Raises `ValueError`."""
    name, sign, number = (part.strip() for part in text.partition("="))
    try:
        check_name("queue", name)
    except NameRefused as error:
        raise ValueError(error.problem) from None
    if not sign:
        return QueueSlots(name)
    # Only ASCII digits, and few: `int` reads far more than that.
    slots = int(number) if number.isascii() and number.isdecimal() and len(number) <= 4 else 0
    if not 1 <= slots <= MOST_SLOTS:
        raise ValueError(f"must give queue {name} a whole number of slots from 1 to {MOST_SLOTS}, as in {name}=20")
    return QueueSlots(name, slots)


def read_queues(texts: Sequence[str]) -> tuple[QueueSlots, ...]:
    """Return what each text says, in order. Raises `ValueError`, also for a queue that is named twice."""
    queues = tuple(read_queue(text) for text in texts)
    if len({queue.name for queue in queues}) < len(queues):
        raise ValueError("must name each queue once")
    return queues
