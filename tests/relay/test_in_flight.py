"""The ledger of unconfirmed messages: whatever the broker answers, each message ends exactly once."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outbox.releasing.relaying import ReleasedHint
from outbox_relay.broker.in_flight import InFlight
from outbox_relay.messages import Message, Outcome

HINT = ReleasedHint(UUID(int=1).bytes, 1, 0)


def message(name: str) -> Message:
    """Return a message with this id."""
    return Message(name, "q", (HINT,))


def test_single_and_multiple_acks_confirm_what_they_name() -> None:
    """An ack names one tag, or all up to it."""
    ledger = InFlight()
    for name in "abcd":
        ledger.sent(message(name), 0)
    assert [one.message.id for one in ledger.ack(3, multiple=False)] == ["c"]
    assert [one.message.id for one in ledger.ack(2, multiple=True)] == ["a", "b"]
    assert [one.message.id for one in ledger.ack(0, multiple=True)] == ["d"]


def test_returned_message_is_not_confirmed_by_the_ack_that_follows() -> None:
    """The broker confirms an unroutable message after returning it; that is no delivery."""
    ledger = InFlight()
    for name in "abc":
        ledger.sent(message(name), 0)
    assert ledger.returned("b")
    outcomes = {one.message.id: one.outcome for one in ledger.ack(3, multiple=True)}
    assert outcomes == {"a": Outcome.CONFIRMED, "b": Outcome.RETURNED, "c": Outcome.CONFIRMED}


def test_answers_for_unknown_tags_and_ids_change_nothing() -> None:
    """A tag that was never given, was given up, or was answered before finds nothing."""
    ledger = InFlight()
    ledger.sent(message("a"), 0)
    assert ledger.ack(7, multiple=False) == []
    assert not ledger.returned("zzz")
    assert not ledger.returned(None)
    assert [one.outcome for one in ledger.lose_all()] == [Outcome.CUT_OFF]
    assert ledger.ack(1, multiple=False) == []
    assert len(ledger) == 0


@given(st.lists(st.floats(0, 100), max_size=30).map(sorted), st.floats(0, 100))
def test_only_messages_past_their_time_are_given_up(instants: list[float], limit: float) -> None:
    """`overdue` takes the messages sent up to an instant and no others."""
    ledger = InFlight()
    for number, instant in enumerate(instants):
        ledger.sent(message(str(number)), instant)
    assert len(ledger.overdue(limit)) == sum(instant <= limit for instant in instants)
    assert len(ledger) == sum(instant > limit for instant in instants)


class EveryMessageEndsOnce(RuleBasedStateMachine):
    """Any sequence of publishes and answers, sensible or not."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = InFlight()
        self.sent: set[str] = set()
        self.ended: list[str] = []
        self.came_back: set[str] = set()
        self.clock = 0.0

    @rule()
    def publish(self) -> None:
        """Send one more."""
        name = str(len(self.sent))
        self.clock += 1
        assert self.ledger.sent(message(name), self.clock) == len(self.sent) + 1
        self.sent.add(name)

    @rule(tag=st.integers(0, 40), multiple=st.booleans(), good=st.booleans())
    def answer(self, tag: int, multiple: bool, good: bool) -> None:
        """Ack or nack any tag."""
        settled = (self.ledger.ack if good else self.ledger.nack)(tag, multiple=multiple)
        for one in settled:
            came_back = one.message.id in self.came_back
            assert (one.outcome is Outcome.RETURNED) == came_back
            self.ended.append(one.message.id)

    @rule(number=st.integers(0, 40))
    def come_back(self, number: int) -> None:
        """Return any message."""
        if self.ledger.returned(str(number)):
            self.came_back.add(str(number))

    @rule(age=st.floats(0, 20))
    def give_up(self, age: float) -> None:
        """Give up the old ones."""
        self.ended += [one.message.id for one in self.ledger.overdue(self.clock - age)]

    @rule()
    def lose(self) -> None:
        """Lose the channel."""
        self.ended += [one.message.id for one in self.ledger.lose_all()]
        assert len(self.ledger) == 0

    @invariant()
    def once(self) -> None:
        """Nothing ends twice, nothing vanishes."""
        assert len(self.ended) == len(set(self.ended))
        assert len(self.ended) + len(self.ledger) == len(self.sent)


TestEveryMessageEndsOnce = EveryMessageEndsOnce.TestCase
