"""What keys do to the screen of `outbox top`."""

from __future__ import annotations

from uuid import UUID

from outbox.cli.top.reading import Picture
from outbox.cli.top.state import Act, Deed, JobLine, Mode, State, chosen_job, chosen_queue, press, row_count
from outbox.cli.top.terminal import taken_in
from outbox.cli.top.work import Answer
from support.pictures import picture, queue, running

SHOWN = picture([queue("a"), queue("b"), queue("c")], [running(1), running(2)])


def pressed(state: State, *keys: str, shown: Picture | None = SHOWN) -> tuple[State, Act | None]:
    """Return what these keys make of a screen, and what the last of them asks for."""
    act = None
    for key in keys:
        state, act = press(state, key, shown)
    return state, act


def test_a_choice_stays_while_the_lists_change() -> None:
    """What is chosen is a name, not a row; where it is gone, the first is chosen."""
    state, _ = pressed(State(), "down", "j", "down")
    assert chosen_queue(state, SHOWN) == "c"
    assert chosen_queue(state, picture([queue("0"), queue("c")])) == "c"
    assert chosen_queue(state, picture([queue("0")])) == "0"
    state, _ = pressed(state, "tab", "down")
    assert (chosen_job(state, SHOWN), row_count(state, SHOWN)) == (UUID(int=2), 2)
    assert chosen_queue(pressed(State(), "page_down", "up")[0], SHOWN) == "b"


def test_keys_ask_for_what_is_chosen() -> None:
    """Enter opens a queue, or tells a job's life; e explains; nothing is asked for where nothing is chosen."""
    assert pressed(State(), "down", "enter")[1] == Act(Deed.OPEN, queue="b")
    assert pressed(State(), "tab", "enter")[1] == Act(Deed.TIMELINE, job=UUID(int=1))
    assert pressed(State(), "tab", "down", "e")[1] == Act(Deed.EXPLAIN, job=UUID(int=2))
    state, act = pressed(State(), "e")
    assert (act, state.note) == (None, "choose a job first: tab, or enter on a queue")
    for nothing in (None, picture([])):
        for key in ("down", "enter", "p", "r", "t", "tab", "x", " "):
            assert pressed(State(), key, shown=nothing)[1] in {None, Act(Deed.LOOK)}
    assert pressed(State(), "tab", "p")[0].note == "choose a queue first"


def test_a_pause_asks_who_and_why() -> None:
    """Both are needed; escape changes nothing; who is remembered for the next."""
    keys = ["p", "enter", "o", "p", "x", "backspace", "s", "enter", "enter", "b", "\x07", " ", "q"]
    state, act = pressed(State(), *keys)
    assert act is None
    assert state.asked is not None
    assert (state.asked.by, state.asked.reason) == ("ops", "b q")
    state, act = pressed(state, "enter")
    assert act == Act(Deed.PAUSE, queue="a", by="ops", reason="b q")
    state, _ = pressed(state, "down", "r")
    assert state.asked is not None
    assert (state.asked.by, state.asked.queue) == ("ops", "b")
    state, act = pressed(state, "escape")
    assert (state.asked, act, state.note) == (None, None, "nothing was changed")
    long, _ = pressed(State(), "p", *"x" * 300)
    assert long.asked is not None
    assert len(long.asked.by) == 200


def test_one_goes_back_the_way_one_came() -> None:
    """From a job's text to its queue, from there to all, and out."""
    opened = Answer(Act(Deed.OPEN, queue="b"), jobs=(JobLine(UUID(int=7), "seven"), JobLine(UUID(int=8), "eight")))
    state, _ = taken_in(State(), SHOWN, opened)
    assert (state.mode, chosen_queue(state, SHOWN)) == (Mode.QUEUE, "b")
    state, act = pressed(state, "down", "e")
    assert act == Act(Deed.EXPLAIN, job=UUID(int=8))
    state, _ = taken_in(state, SHOWN, Answer(act, text=("one", "two", "three")))
    assert pressed(state, "down", "down", "down", "down")[0].top == 2
    assert pressed(state, "up")[0].top == 0
    state, act = pressed(state, "q")
    assert (state.mode, act, chosen_job(state, SHOWN)) == (Mode.QUEUE, None, UUID(int=8))
    state, act = pressed(state, "escape")
    assert (state.mode, act) == (Mode.ALL, None)
    assert pressed(state, "escape")[1] is None
    assert pressed(state, "q")[1] == Act(Deed.QUIT)


def test_an_answer_replaces_what_is_told() -> None:
    """A picture comes as it is; trouble is told until a look succeeds; what was changed stays told."""
    state, shown = taken_in(State(), None, Answer(Act(Deed.LOOK), note="the database is away or refuses: \x1b[2J"))
    assert (state.note, shown) == ("the database is away or refuses: [2J", None)
    state, shown = taken_in(state, None, Answer(Act(Deed.LOOK), picture=SHOWN))
    assert (state.note, shown) == ("", SHOWN)
    state, _ = taken_in(state, SHOWN, Answer(Act(Deed.PAUSE), note="queue a is paused", picture=SHOWN))
    assert taken_in(state, SHOWN, Answer(Act(Deed.LOOK), picture=SHOWN))[0].note == "queue a is paused"
