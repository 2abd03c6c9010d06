"""The terminal: keys in, lines out. Only here is curses used, and it always leaves the terminal as it found it."""

from __future__ import annotations

import curses
import locale
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from outbox.cli.top.reading import Picture
from outbox.cli.top.screen import Line, Style, render
from outbox.cli.top.state import Act, Deed, Mode, State, press
from outbox.cli.top.work import Answer, Worker
from outbox.texts.masking import masked_line

__all__ = ["show_screen", "taken_in"]

# How often answers are looked for while no key comes.
_TICK_MS = 100
_NOTE = 200
_NAMED = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page_up",
    curses.KEY_NPAGE: "page_down",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
}
_TYPED = {"\n": "enter", "\r": "enter", "\t": "tab", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace"}


def show_screen(worker: Worker) -> None:
    """Show what the worker finds until somebody leaves. Raises `curses.error` where the terminal is none."""
    locale.setlocale(locale.LC_ALL, "")
    with _orderly_end():
        curses.wrapper(_run, worker)


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Have a request to end pass through what puts the terminal back, instead of ending the process at once."""

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(window: Any, worker: Worker) -> None:
    curses.set_escdelay(25)
    curses.curs_set(0)
    styles = _styles()
    window.timeout(_TICK_MS)
    worker.start()
    state, picture, is_new = State(), None, True
    while True:
        if is_new:
            _draw(window, render(state, picture, *_size(window)), styles)
        key = _key(window)
        before = state, picture
        for answer in _answers(worker):
            state, picture = taken_in(state, picture, answer)
        if key is not None and key != "resize":
            state, act = press(state, key, picture)
            if act is not None and act.deed is Deed.QUIT:
                return
            if act is not None and not worker.ask(act):
                state = replace(state, note="the database is slow; that was not done")
        is_new = key == "resize" or (state, picture) != before


def taken_in(state: State, picture: Picture | None, answer: Answer) -> tuple[State, Picture | None]:
    """Return screen and picture with an answer. Pure."""
    act = answer.act
    if answer.jobs is not None and act is not None:
        state = replace(state, mode=Mode.QUEUE, opened=act.queue, jobs=answer.jobs, job=None, note="")
    if answer.text is not None:
        state = replace(state, mode=Mode.TEXT, text=answer.text, top=0, note="")
    if answer.note is not None:
        state = replace(state, note=masked_line(answer.note, _NOTE))
    elif act == Act(Deed.LOOK) and state.note.startswith("the database"):
        state = replace(state, note="")
    return state, picture if answer.picture is None else answer.picture


def _answers(worker: Worker) -> Iterator[Answer]:
    while True:
        try:
            yield worker.answers.get_nowait()
        except queue.Empty:
            return


def _key(window: Any) -> str | None:
    """Return the key that was pressed, if any within a tick."""
    try:
        pressed = window.get_wch()
    except curses.error:
        return None
    if isinstance(pressed, int):
        return "resize" if pressed == curses.KEY_RESIZE else _NAMED.get(pressed)
    return _TYPED.get(str(pressed), str(pressed))


def _size(window: Any) -> tuple[int, int]:
    """Return width and height. The last column stays free: a terminal that wraps there would scroll."""
    height, width = window.getmaxyx()
    return max(width - 1, 1), height


def _styles() -> dict[Style, int]:
    styles = {Style.PLAIN: curses.A_NORMAL, Style.HEAD: curses.A_BOLD, Style.CHOSEN: curses.A_REVERSE}
    styles[Style.BAD] = curses.A_BOLD
    if curses.has_colors():
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        styles[Style.BAD] = curses.color_pair(1) | curses.A_BOLD
    return styles


def _draw(window: Any, lines: list[Line], styles: dict[Style, int]) -> None:
    window.erase()
    encoding = locale.getpreferredencoding(do_setlocale=False)
    for row, line in enumerate(lines):
        text = line.text.encode(encoding, "replace").decode(encoding)
        try:
            window.addstr(row, 0, text, styles[line.style])
        except curses.error:  # it has just become smaller; a resize follows
            break
    window.refresh()
