"""The ledger of what was published on one channel and not answered yet. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from outbox_relay.messages import Message, Outcome, Settled

__all__ = ["InFlight"]


@dataclass(slots=True)
class _Entry:
    message: Message
    sent_at: float
    returned: bool = False


class InFlight:
    """Maps the delivery tags of one channel in confirm mode to messages.

    Every message that enters by `sent` leaves exactly once: as it is removed on the way out, a second answer,
    a late one or one for a tag that was never given finds nothing.
    """

    def __init__(self) -> None:
        self._last_tag = 0
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._tags: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def sent(self, message: Message, at: float) -> int:
        """Enter a message published at `at` and return its tag: the broker counts from 1, one per publish."""
        self._last_tag += 1
        self._entries[self._last_tag] = _Entry(message, at)
        self._tags[message.id] = self._last_tag
        return self._last_tag

    def ack(self, tag: int, *, multiple: bool) -> list[Settled]:
        """Settle one message, or all up to `tag` (0: all) with `multiple`. What came back isn't confirmed."""
        return self._answer(tag, Outcome.CONFIRMED, multiple=multiple)

    def nack(self, tag: int, *, multiple: bool) -> list[Settled]:
        """Settle one message, or all up to `tag`, as refused."""
        return self._answer(tag, Outcome.NACKED, multiple=multiple)

    def returned(self, message_id: str | None) -> bool:
        """Remember that a message came back unroutable (its confirm follows); return whether it was ours."""
        tag = self._tags.get(message_id) if message_id is not None else None
        if tag is None:
            return False
        self._entries[tag].returned = True
        return True

    def overdue(self, sent_before: float) -> list[Settled]:
        """Give up the messages sent at or before `sent_before`; their late answers will find nothing."""
        late = []
        for tag, entry in self._entries.items():
            if entry.sent_at > sent_before:
                break  # tags grow with time
            late.append(tag)
        return [self._leave(tag, Outcome.CUT_OFF) for tag in late]

    def lose_all(self) -> list[Settled]:
        """Give up everything: the channel is gone."""
        return [self._leave(tag, Outcome.CUT_OFF) for tag in list(self._entries)]

    def _answer(self, tag: int, outcome: Outcome, *, multiple: bool) -> list[Settled]:
        if not multiple:
            return [self._leave(tag, outcome)] if tag in self._entries else []
        settled = []
        while self._entries:
            oldest = next(iter(self._entries))
            if 0 < tag < oldest:
                break
            settled.append(self._leave(oldest, outcome))
        return settled

    def _leave(self, tag: int, outcome: Outcome) -> Settled:
        entry = self._entries.pop(tag)
        del self._tags[entry.message.id]
        return Settled(entry.message, Outcome.RETURNED if entry.returned else outcome)
