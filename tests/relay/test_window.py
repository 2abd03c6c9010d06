"""Whether the broker answers at all, as the room between release loop and publisher tells."""

from __future__ import annotations

import threading

import pytest

from outbox_relay import window as window_module
from outbox_relay.messages import Outcome, Settled
from outbox_relay.window import Window

from .test_in_flight import message


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """Return the time, which the test drives."""
    now = [1000.0]
    monkeypatch.setattr(window_module.time, "monotonic", lambda: now[0])
    return now


def test_the_broker_owes_an_answer_until_it_gives_one(now) -> None:
    """A confirm, a refusal or a return is one; while more is out, the next is owed from then on."""
    window = Window(10, threading.Event())
    assert window.unanswered_s(60) == 0
    first, second = message("a"), message("b")
    window.admit([first, second])
    now[0] += 5
    assert window.unanswered_s(60) == 5
    window.settle([Settled(first, Outcome.NACKED)])
    now[0] += 3
    assert window.unanswered_s(60) == 3
    window.settle([Settled(second, Outcome.CONFIRMED)])
    now[0] += 5
    assert window.unanswered_s(60) == 0


def test_what_is_cut_off_stays_unanswered_for_a_while(now) -> None:
    """A connection that is cut and made anew, again and again, hides nothing, however long the last one stood; when
    nothing goes out any more, nobody waits for an answer.
    """
    window = Window(10, threading.Event())
    for name in "abc":
        window.admit([message(name)])
        now[0] += 4
        window.cut_off_all()
        assert not window.outstanding
    assert window.unanswered_s(1) == 12
    now[0] += 9
    assert window.unanswered_s(10) == 21
    now[0] += 1
    assert window.unanswered_s(10) == 0
