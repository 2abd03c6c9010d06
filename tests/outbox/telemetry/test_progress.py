"""What is decided from how the parts are: pure."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from outbox.processes.pulse import Pulse
from outbox.telemetry.contract import PARTS
from outbox.telemetry.health import health_reply
from outbox.telemetry.progress import DATABASE, Look, Since, decided, told

waits = st.sampled_from([0.0, 29.9, 30.0, 1e6])
looks = st.lists(st.builds(lambda part, wait: Look(part, "x", wait, 30.0), st.sampled_from(PARTS), waits), max_size=6)


@given(looks)
def test_what_waits_for_less_than_its_bound_is_well(seen: list[Look]) -> None:
    """Nothing else is named; where the database is away, only what does not rest on it is named beside it."""
    verdict = decided(seen, "idle")
    named = {wrong.part for wrong in verdict.wrong}
    stuck = {look.part for look in seen if look.waiting_s >= 30}
    assert verdict.well is (not stuck)
    assert named == (stuck & {DATABASE, "broker", "confirms", "handlers"} if DATABASE in stuck else stuck)
    shown = dict(told(seen))
    assert {labels[0] for labels in shown} == {look.part for look in seen}
    assert {labels[0] for labels, seconds in shown.items() if seconds} == named


def test_the_answer_says_since_when() -> None:
    """In seconds, which no clock can make wrong; and the state where nothing is stuck."""
    reply = health_reply(decided([Look("claims", "they hang", 31.26, 30), Look("pool", "full", 3, 30)], "busy"))
    assert (reply.status, json.loads(reply.text)) == (
        503,
        {"status": "failing", "wrong": [{"part": "claims", "problem": "they hang", "for_s": 31.3}]},
    )
    assert json.loads(health_reply(decided([], "busy")).text) == {"status": "busy", "wrong": []}


def test_since_counts_from_the_first_look_that_found_it() -> None:
    """One look at which it does not hold, and it begins anew."""
    now = [100.0]
    since = Since(lambda: now[0])
    assert since.seconds() == 0
    since.note(True)
    now[0] += 5
    since.note(True)
    assert since.seconds() == 5
    since.note(False)
    now[0] += 5
    assert since.seconds() == 0
    since.note(True)
    now[0] += 1
    assert since.seconds() == 1


def test_a_pulse_grows_old_between_two_beats() -> None:
    """From when it was made, before the first."""
    pulse = Pulse()
    first = pulse.age_s()
    assert 0 <= first <= pulse.age_s()
    pulse.beat()
    assert pulse.age_s() < 5
