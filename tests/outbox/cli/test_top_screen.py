"""The lines of `outbox top`: what they say, and that nothing in the tables can leave its cell."""

from __future__ import annotations

from unicodedata import category, east_asian_width
from uuid import UUID

import pytest

from outbox.cli.top.screen import Style, cut, render, report
from outbox.cli.top.state import Asked, Deed, JobLine, Mode, Part, State
from outbox.leases.presence import ProcessView, Role
from outbox.operating.pausing import Pause, PauseScope
from support.pictures import AT, picture, queue, running

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u200b password=canary-hunter2\n\r漢字漢字漢字 " + "x" * 500
WORKER = ProcessView("host/1/ab", Role.CONSUMER, "host", 1, "1", ("a",), ("send 1",), (), AT, AT, 1.0, True)


def cells(text: str) -> int:
    """Return how wide a text is."""
    return sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


def test_the_screen_tells_what_matters() -> None:
    """Depth, age, rates, drain time, pauses, workers, dead letters and held effects; and which row is chosen."""
    shown = picture(
        [queue("a", paused=True), queue("b", ready=5000, capped=True, letters=4)],
        [running(1, progress="page 3"), running(2, lease_s=-1.0)],
        [WORKER],
        [Pause(PauseScope.QUEUE, "a", "ops", "bank closed", AT)],
        letters=4,
        uncertain=10_000,
    )
    lines = render(State(queue="b"), shown, 160, 30)
    text = "\n".join(line.text for line in lines)
    for part in (
        "≥5000",
        "1 min 1 s",
        "2 h",
        "page 3",
        "its lease is over",
        "no relay was seen",
        "consumers 1: host",
    ):
        assert part in text
    assert "dead letters 4  effects on hold 10000+" in text
    assert "paused: queue a by ops: bank closed" in text
    assert [line.text.split()[0] for line in lines if line.style is Style.CHOSEN] == ["b"]
    assert "q quit" in lines[-1].text
    assert any("page 3" in line for line in report(shown))


@pytest.mark.parametrize("width", [1, 7, 80, 200])
@pytest.mark.parametrize("height", [1, 5, 24])
def test_nothing_leaves_its_cell(width: int, height: int) -> None:
    """Whatever names, markers, notes and texts hold: no control character, no secret, no line too wide or too many."""
    shown = picture(
        [queue(HOSTILE), queue("漢" * 40)],
        [running(1, logical_key=HOSTILE, progress=HOSTILE, worker=HOSTILE, kind=HOSTILE, queue=HOSTILE)],
        [WORKER],
        [Pause(PauseScope.QUEUE, HOSTILE, HOSTILE, HOSTILE, AT)],
    )
    jobs = (JobLine(UUID(int=1), HOSTILE),)
    states = [
        State(note=HOSTILE),
        State(part=Part.RUNNING),
        State(mode=Mode.QUEUE, opened=HOSTILE, jobs=jobs),
        State(mode=Mode.TEXT, text=(HOSTILE, HOSTILE)),
        State(asked=Asked(Deed.PAUSE, HOSTILE, HOSTILE)),
    ]
    for state in states:
        lines = render(state, shown, width, height)
        assert len(lines) <= height
        for line in lines:
            assert cells(line.text) <= width
            assert not any(category(one).startswith("C") for one in line.text)
            assert "hunter2" not in line.text
    assert "hunter2" not in "".join(report(shown))
    assert "\x1b" not in "".join(report(shown))


def test_the_chosen_row_is_always_on_the_screen() -> None:
    """However many queues and jobs there are, and however low the screen is."""
    shown = picture([queue(f"q{number:03}") for number in range(300)], [running(number) for number in range(1, 300)])
    for height in (12, 24, 60):
        for name in ("q000", "q150", "q299"):
            chosen = [one.text for one in render(State(queue=name), shown, 120, height) if one.style is Style.CHOSEN]
            assert [one.split()[0] for one in chosen] == [name]
        state = State(part=Part.RUNNING, job=UUID(int=250))
        chosen = [one.text for one in render(state, shown, 120, height) if one.style is Style.CHOSEN]
        assert "key-250" in chosen[0]


def test_wide_characters_count_for_two() -> None:
    """A text is cut before the cell that would not fit."""
    assert cut("漢字x", 3) == "漢"
    assert cut("漢字x", 4) == "漢字"
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""
    assert render(State(), None, 80, 10)[0].text.startswith("outbox top: looking")
