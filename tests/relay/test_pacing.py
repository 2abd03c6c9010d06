"""The relay's pure decisions: packing, room, pauses, and the bounded window."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.releasing.relaying import ReleasedHint
from outbox_relay.messages import Message, Outcome, Settled, pack, per_message
from outbox_relay.pacing import (
    PAUSE_MAX_S,
    owe_again,
    pause_s,
    refill_at,
    room,
    together,
)
from outbox_relay.window import Window
from outbox_schemas.hint import MAX_HINT_BYTES, MAX_HINT_JOBS, decode_hint, encode_hint
from outbox_schemas.topology import broker_queue, queue_arguments


def hints(count: int, release_count: int = 1) -> list[ReleasedHint]:
    """Return so many hints of different jobs."""
    return [ReleasedHint(UUID(int=number).bytes, release_count, 0) for number in range(count)]


@given(st.integers(0, 3000), st.integers(1, 1000))
def test_packing_keeps_every_hint_once_and_in_order(count: int, most: int) -> None:
    """No hint is lost, doubled or overtaken, no message is over the limits, and messages never outnumber hints."""
    messages = pack("q", hints(count), most)
    assert [hint for one in messages for hint in one.hints] == hints(count)
    assert len(messages) <= count
    assert len({one.id for one in messages}) == len(messages)
    for one in messages:
        ids = [hint.job_id for hint in one.hints]
        assert 1 <= len(ids) <= min(most, MAX_HINT_JOBS)
        body = encode_hint(ids)
        assert len(body) <= MAX_HINT_BYTES
        assert decode_hint(body) == ids


@pytest.mark.parametrize(("batch", "most", "expected"), [(1, 25, 1), (64, 25, 1), (640, 25, 10), (9999, 25, 25)])
def test_only_a_large_batch_shares_messages(batch: int, most: int, expected: int) -> None:
    """A slow queue gets one job a message, so that every waiting consumer has a share of it."""
    assert per_message(batch, most) == expected


@pytest.mark.parametrize(
    ("rate", "out", "expected"), [(0, 2000, 1), (1_000, 1000, 5), (4_000, 500, 20), (4_000, 499, 1), (50_000, 1000, 31)]
)
def test_consumers_that_take_much_are_sent_fuller_messages(rate: float, out: int, expected: int) -> None:
    """Who takes thousands a second gets what it takes in a few milliseconds in one message; but one job each while few
    are out, and a full runway is always many messages.
    """
    assert together(rate, out, runway=2000) == expected
    assert per_message(100, 25, together(rate, out, runway=2000)) == min(expected, 25)


@given(st.integers(0, 5000), st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 5000))
def test_release_stays_inside_runway_batch_and_window(released: int, runway: int, batch: int, free: int) -> None:
    """No release goes beyond any of its three limits. An empty runway is always refilled; one of which more than half
    is out never is, since there will be room for many at once.
    """
    count = room(released, runway=runway, batch=batch, free=free)
    assert 0 <= count <= min(batch, free)
    assert count == 0 or released + count <= runway
    assert released or count == min(runway, batch, free)
    assert not count or released <= refill_at(runway)
    assert count or released > refill_at(runway) or released == runway or not free


@given(st.integers(0, 10**9))
def test_pauses_grow_within_bounds_and_a_cut_costs_none(count: int) -> None:
    """A lost connection costs a hint no wait; a refusal costs more each time, up to 30 seconds."""
    assert pause_s(Outcome.CUT_OFF, count) == 0
    for outcome in (Outcome.NACKED, Outcome.RETURNED):
        assert 0 < pause_s(outcome, count) <= PAUSE_MAX_S
    assert pause_s(Outcome.NACKED, 10**6) >= PAUSE_MAX_S / 2


def test_only_unconfirmed_hints_are_owed_again() -> None:
    """Confirmed ones are done; the others are grouped by how long they pause."""
    settled = [
        Settled(Message("a", "q", tuple(hints(2))), Outcome.CONFIRMED),
        Settled(Message("b", "q", tuple(hints(2, 1))), Outcome.CUT_OFF),
        Settled(Message("c", "q", tuple(hints(1, 5))), Outcome.CUT_OFF),
        Settled(Message("d", "q", tuple(hints(1, 2))), Outcome.NACKED),
    ]
    groups = {group.outcome: len(group.hints) for group in owe_again(settled)}
    assert groups == {Outcome.CUT_OFF: 3, Outcome.NACKED: 1}


@given(st.lists(st.sampled_from(["admit", "settle", "take"]), max_size=100), st.integers(1, 10))
def test_window_never_holds_more_than_its_size(actions: list[str], size: int) -> None:
    """Whoever is slow, what is out and what waits to be taken stay within the window together."""
    window = Window(size, threading.Event())
    out: list[Message] = []
    settled, taken, sent = 0, 0, 0
    for action in actions:
        if action == "admit" and window.free():
            out.append(Message(str(sent), "q", tuple(hints(1))))
            window.admit(out[-1:])
            sent += 1
        elif action == "settle" and out:
            one = Settled(out.pop(0), Outcome.CONFIRMED)
            window.settle([one, one])  # only the first counts
            settled += 1
        elif action == "take":
            taken += len(window.take())
        assert window.outstanding == len(out)
        assert 0 <= window.free() == size - len(out) - (settled - taken)
    window.cut_off_all()
    assert sent == taken + len(window.take())
    assert window.outstanding == 0


def test_window_wakes_the_loop_for_trouble_and_for_room() -> None:
    """A confirm alone is no reason to hurry, unless the loop waits for room."""
    wake = threading.Event()
    window = Window(2, wake)
    first, second, third = (Message(name, "q", tuple(hints(1))) for name in "abc")
    window.admit([first, second])
    window.settle([Settled(first, Outcome.CONFIRMED)])
    assert not wake.is_set()
    assert window.free() == 0
    window.settle([Settled(second, Outcome.CONFIRMED)])
    assert wake.is_set()
    wake.clear()
    window.take()
    window.admit([third])
    window.cut_off([third])
    assert wake.is_set()


def test_queue_is_named_and_declared_alike_for_everybody() -> None:
    """Names stay within the protocol's 255 bytes, and each type of queue is named in its arguments."""
    assert broker_queue("outbox", "default") == "outbox.default"
    assert len(broker_queue("p" * 100, "q" * 100)) <= 255
    assert queue_arguments("classic") == {"x-queue-type": "classic"}
    assert queue_arguments("quorum")["x-queue-type"] == "quorum"
