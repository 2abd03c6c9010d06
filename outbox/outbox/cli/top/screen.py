"""The lines of the screen. Pure: what rows hold is masked and made printable here, and cut to the width in cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from unicodedata import east_asian_width

from outbox.cli.output import instant
from outbox.cli.top.reading import MOST_MATTERS, Picture, QueueLine
from outbox.cli.top.state import Mode, Part, State, chosen_job, chosen_queue
from outbox.leases.presence import QUIET_S, ProcessView, Role
from outbox.reading.running import RunningJob
from outbox.texts.masking import masked_line, masked_start, printable
from outbox.texts.spans import span

__all__ = ["Line", "Style", "cut", "render", "report"]

_CELL = 200
_LOST = 0.0


class Style(StrEnum):
    """How a line is to stand out."""

    PLAIN = "plain"
    HEAD = "head"
    CHOSEN = "chosen"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its text, no wider than the screen, and its style."""

    text: str
    style: Style = Style.PLAIN


_Columns = tuple[tuple[str, int, bool], ...]
_QUEUE_COLUMNS: _Columns = (
    ("QUEUE", 24, False),
    ("READY", 9, True),
    ("SCHED", 7, True),
    ("RUN", 6, True),
    ("OLDEST", 11, True),
    ("IN/S", 8, True),
    ("OUT/S", 8, True),
    ("DRAINS IN", 12, True),
    ("DEAD", 6, True),
    ("", 8, False),
)
_RUN_COLUMNS: _Columns = (
    ("RUNS FOR", 11, True),
    ("QUEUE", 16, False),
    ("KIND", 22, False),
    ("KEY", 26, False),
    ("TRY", 4, True),
    ("PROGRESS", 26, False),
    ("WORKER", 30, False),
)


def render(state: State, picture: Picture | None, width: int, height: int) -> list[Line]:
    """Return at most `height` lines of at most `width` cells: the head, what is asked for, and the keys at the foot."""
    foot = _foot(state)
    room = max(height - len(foot), 0)
    body = list(_body(state, picture, room))[:room]
    return [Line(cut(line.text, width), line.style) for line in [*body, *foot]][:height]


def report(picture: Picture) -> list[str]:
    """Return the same as plain lines of any number, for where there is no terminal."""
    lines = [*_head(picture), Line("")]
    lines += [Line(_row(_QUEUE_COLUMNS, None)), *(Line(_queue(one)) for one in picture.queues), Line("")]
    lines += [Line(_row(_RUN_COLUMNS, None)), *(Line(_running(one)) for one in picture.running)]
    return [line.text.rstrip() for line in lines]


def cut(text: str, width: int) -> str:
    """Return a text of at most so many cells; wide characters count for two."""
    cells = 0
    for place, character in enumerate(text):
        cells += 2 if east_asian_width(character) in "WF" else 1
        if cells > width:
            return text[:place]
    return text


def _body(state: State, picture: Picture | None, room: int) -> Iterator[Line]:
    if picture is None:
        yield Line("outbox top: looking …", Style.HEAD)
        return
    if state.mode is Mode.TEXT:
        yield from (Line(_whole(text)) for text in state.text[state.top : state.top + room])
        return
    head = [*_head(picture), Line("")]
    yield from head
    left = room - len(head)
    if state.mode is Mode.QUEUE:
        yield Line(f"jobs of queue {masked_line(state.opened, _CELL)}, the newest first", Style.HEAD)
        chosen = chosen_job(state, picture)
        rows = [Line(_whole(one.text), _style(one.id == chosen)) for one in state.jobs]
        yield from _around(rows, left - 1)
        return
    yield from _lists(state, picture, left)


def _lists(state: State, picture: Picture, room: int) -> Iterator[Line]:
    """Yield queues and running jobs; the one in which the keys move gets what the other doesn't need of its third."""
    in_queues = state.part is Part.QUEUES
    queue, job = chosen_queue(state, picture), chosen_job(state, picture)
    queues = [
        Line(_queue(one), _style(in_queues and one.queue == queue, bad=one.paused or one.letters > 0))
        for one in picture.queues
    ]
    running = [
        Line(_running(one), _style(not in_queues and one.id == job, bad=one.lease_s < _LOST)) for one in picture.running
    ]
    rows = max(room - 3, 1)  # two headings and the line between
    other = min(len(running if in_queues else queues), rows // 3)
    for_queues = min(rows - other, len(queues)) if in_queues else other
    if in_queues or other:
        yield Line(_row(_QUEUE_COLUMNS, None), Style.HEAD)
        yield from _around(queues, for_queues)
        yield Line("")
    yield Line(_row(_RUN_COLUMNS, None), Style.HEAD)
    yield from _around(running, rows - for_queues)


def _around(rows: Sequence[Line], room: int) -> Sequence[Line]:
    """Return so many rows, among them the chosen one."""
    room = max(room, 0)
    chosen = next((place for place, row in enumerate(rows) if row.style is Style.CHOSEN), 0)
    first = min(max(chosen - room + 1, 0), max(len(rows) - room, 0))
    return rows[first : first + room]


def _head(picture: Picture) -> Iterator[Line]:
    ready, running = sum(one.ready for one in picture.queues), len(picture.running)
    counted = "now" if picture.counted_s is None else f"{span(picture.counted_s)} ago"
    yield Line(f"outbox  {instant(picture.at)}  ready {ready}  running {running}  counted {counted}", Style.HEAD)
    for role in (Role.RELAY, Role.CONSUMER):
        found = picture.of_role(role)
        yield Line(_processes(role, found), Style.PLAIN if found else Style.BAD)
    matters = f"dead letters {_at_most(picture.letters)}  effects on hold {_at_most(picture.uncertain)}"
    matters += f"  effects under way {_at_most(picture.pending)}"
    yield Line(matters, Style.BAD if picture.letters or picture.uncertain else Style.PLAIN)
    if picture.pauses:
        told = "; ".join(f"{one} by {one.by}: {one.reason}" for one in picture.pauses[:5])
        yield Line(f"paused: {masked_line(told, 2 * _CELL)}", Style.BAD)


def _processes(role: Role, found: Sequence[ProcessView]) -> str:
    if not found:
        return f"no {role.value} was seen within a minute"
    quiet = [one for one in found if one.quiet_s >= QUIET_S]
    text = f"{role.value}s {len(found)}" + (f" ({len(quiet)} quiet)" if quiet else "")
    return f"{text}: {masked_line(', '.join(one.name for one in found[:6]), _CELL)}"


def _at_most(count: int) -> str:
    return f"{count}+" if count >= MOST_MATTERS else str(count)


def _queue(one: QueueLine) -> str:
    cells = [
        one.queue,
        f"{'≥' if one.capped else ''}{one.ready}",
        one.scheduled,
        one.running,
        None if one.oldest_s is None else span(one.oldest_s),
        None if one.in_per_s is None else f"{one.in_per_s:.1f}",
        None if one.out_per_s is None else f"{one.out_per_s:.1f}",
        None if one.drain_s is None else span(one.drain_s),
        one.letters or None,
        "paused" if one.paused else "",
    ]
    return _row(_QUEUE_COLUMNS, cells)


def _running(one: RunningJob) -> str:
    runs = "-" if one.for_s is None else span(one.for_s)
    worker = "its lease is over" if one.lease_s < _LOST else one.worker
    return _row(_RUN_COLUMNS, [runs, one.queue, one.kind, one.logical_key, one.attempt, one.progress, worker])


def _row(columns: Sequence[tuple[str, int, bool]], cells: Sequence[object] | None) -> str:
    """Return a row of cells of fixed widths; without any, the headings."""
    shown = [name for name, _, _ in columns] if cells is None else [_text(cell) for cell in cells]
    return " ".join(_fitted(text, size, right=right) for text, (_, size, right) in zip(shown, columns, strict=True))


def _whole(text: str) -> str:
    """Return a line as it is, with its blanks, but for what could drive a terminal or is secret."""
    return " ".join(printable(word, _CELL) for word in masked_start(text, 8 * _CELL).split(" "))


def _text(cell: object) -> str:
    return "-" if cell is None else masked_line(str(cell), _CELL)


def _fitted(text: str, size: int, *, right: bool) -> str:
    kept = cut(text, size)
    if kept != text:
        kept = f"{cut(text, size - 1)}…"
    space = " " * (size - sum(2 if east_asian_width(one) in "WF" else 1 for one in kept))
    return space + kept if right else kept + space


def _style(chosen: bool, *, bad: bool = False) -> Style:
    if chosen:
        return Style.CHOSEN
    return Style.BAD if bad else Style.PLAIN


_KEYS = {
    Mode.ALL: "↑↓ choose  tab queues/running  enter open  e explain  t life  p pause  r resume  space look  q quit",
    Mode.QUEUE: "↑↓ choose  enter/t life  e explain  p pause  r resume  space look  q back",
    Mode.TEXT: "↑↓ scroll  q back",
}


def _foot(state: State) -> list[Line]:
    asked = state.asked
    if asked is None:
        return [Line(masked_line(state.note, _CELL), Style.BAD), Line(_KEYS[state.mode], Style.HEAD)]
    typed = asked.reason if asked.at_reason else asked.by
    what = "why?" if asked.at_reason else "who asks?"
    question = f"{asked.deed.value} queue {masked_line(asked.queue, _CELL)}: {what} {masked_line(typed, 2 * _CELL)}_"
    return [
        Line(question, Style.BAD),
        Line("enter goes on, escape changes nothing; the audit keeps both answers", Style.HEAD),
    ]
