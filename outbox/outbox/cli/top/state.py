"""What is on the screen, and what a key does to it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from outbox.cli.top.reading import Picture
from outbox.texts.masking import printable

__all__ = [
    "Act",
    "Asked",
    "Deed",
    "JobLine",
    "Mode",
    "Part",
    "State",
    "chosen_job",
    "chosen_queue",
    "press",
    "row_count",
]

T = TypeVar("T")

MOST_TYPED = 200


class Mode(StrEnum):
    """What the screen shows."""

    ALL = "all"
    QUEUE = "queue"
    TEXT = "text"


class Part(StrEnum):
    """Which list the keys move in."""

    QUEUES = "queues"
    RUNNING = "running"


class Deed(StrEnum):
    """What is to be done outside."""

    QUIT = "quit"
    LOOK = "look"
    OPEN = "open"
    EXPLAIN = "explain"
    TIMELINE = "timeline"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Act:
    """One deed, and of what. `by` and `reason`: of a change, for the audit."""

    deed: Deed
    queue: str = ""
    job: UUID | None = None
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A change that waits for who and why."""

    deed: Deed
    queue: str
    by: str
    reason: str = ""
    at_reason: bool = False


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job of a queue that was opened: its id, and its line."""

    id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class State:
    """The screen.

    Attributes:
        queue, job: what is chosen in the lists; they stay chosen while the lists change.
        opened: the queue whose jobs are shown; `jobs` are these.
        text: what is shown of one job; `top`: its first line on the screen.
        asked: the change that waits for who and why; `by` is who said so last.
        note: what was done or went wrong last.
    """

    mode: Mode = Mode.ALL
    part: Part = Part.QUEUES
    queue: str = ""
    job: UUID | None = None
    opened: str = ""
    jobs: tuple[JobLine, ...] = ()
    text: tuple[str, ...] = ()
    top: int = 0
    asked: Asked | None = None
    by: str = ""
    note: str = ""


def press(state: State, key: str, picture: Picture | None) -> tuple[State, Act | None]:
    """Return what a key makes of the screen, and what is to be done. Keys are `up`, `down`, `page_up`, `page_down`,
    `tab`, `enter`, `escape`, `backspace`, or what was typed. A key that means nothing here changes nothing.
    """
    if state.asked is not None:
        return _type(state, state.asked, key)
    if key in {"q", "escape"}:
        return _back(state, leave=key == "q")
    if key in _DEEDS:
        return _do(state, _DEEDS[key], picture)
    if key in _MOVES:
        state = _move(state, _MOVES[key], picture)
    elif key == "tab" and state.mode is Mode.ALL:
        state = replace(state, part=Part.RUNNING if state.part is Part.QUEUES else Part.QUEUES)
    return state, Act(Deed.LOOK) if key == " " else None


_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "page_up": -10, "page_down": 10}
_DEEDS = {
    "enter": Deed.OPEN,
    "e": Deed.EXPLAIN,
    "t": Deed.TIMELINE,
    "p": Deed.PAUSE,
    "r": Deed.RESUME,
}


def chosen_queue(state: State, picture: Picture | None) -> str | None:
    """Return the queue that is chosen, or opened; the first where that is gone."""
    if state.mode is not Mode.ALL:
        return state.opened or None
    names = [line.queue for line in picture.queues] if picture is not None else []
    return state.queue if state.queue in names else next(iter(names), None)


def chosen_job(state: State, picture: Picture | None) -> UUID | None:
    """Return the job that is chosen in the list of jobs that is shown; the first where that is gone."""
    ids = _ids(state, picture)
    return state.job if state.job in ids else next(iter(ids), None)


def row_count(state: State, picture: Picture | None) -> int:
    """Return how many rows the list has that the keys move in."""
    if state.mode is Mode.ALL and state.part is Part.QUEUES:
        return 0 if picture is None else len(picture.queues)
    return len(_ids(state, picture))


def _ids(state: State, picture: Picture | None) -> Sequence[UUID]:
    if state.mode is not Mode.ALL:
        return [line.id for line in state.jobs]
    return [] if picture is None else [job.id for job in picture.running]


def _back(state: State, *, leave: bool) -> tuple[State, Act | None]:
    if state.mode is Mode.TEXT:
        return replace(state, mode=Mode.QUEUE if state.opened else Mode.ALL, text=(), top=0), None
    if state.mode is Mode.QUEUE:
        return replace(state, mode=Mode.ALL, opened="", jobs=()), None
    return state, Act(Deed.QUIT) if leave else None


def _move(state: State, by: int, picture: Picture | None) -> State:
    if state.mode is Mode.TEXT:
        return replace(state, top=min(max(state.top + by, 0), max(len(state.text) - 1, 0)))
    if state.mode is Mode.ALL and state.part is Part.QUEUES:
        names = [line.queue for line in picture.queues] if picture is not None else []
        return replace(state, queue=_beside(names, chosen_queue(state, picture), by) or "")
    return replace(state, job=_beside(_ids(state, picture), chosen_job(state, picture), by))


def _beside(rows: Sequence[T], chosen: T | None, by: int) -> T | None:
    if chosen is None or not rows:
        return None
    return rows[min(max(rows.index(chosen) + by, 0), len(rows) - 1)]


def _do(state: State, deed: Deed, picture: Picture | None) -> tuple[State, Act | None]:
    of_queue = state.mode is Mode.ALL and state.part is Part.QUEUES
    if deed in {Deed.PAUSE, Deed.RESUME}:
        queue = chosen_queue(state, picture)
        if queue is None or state.mode is Mode.TEXT or (state.mode is Mode.ALL and not of_queue):
            return replace(state, note="choose a queue first"), None
        return replace(state, asked=Asked(deed, queue, state.by), note=""), None
    if deed is Deed.OPEN and of_queue:
        queue = chosen_queue(state, picture)
        return state, None if queue is None else Act(Deed.OPEN, queue=queue)
    if state.mode is Mode.TEXT:
        return state, None
    job = None if of_queue else chosen_job(state, picture)
    if job is None:
        return replace(state, note="choose a job first: tab, or enter on a queue"), None
    return state, Act(Deed.TIMELINE if deed is Deed.OPEN else deed, job=job)


def _type(state: State, asked: Asked, key: str) -> tuple[State, Act | None]:
    """Take in who and why, a key at a time."""
    if key == "escape":
        return replace(state, asked=None, note="nothing was changed"), None
    typed = asked.reason if asked.at_reason else asked.by
    if key == "enter":
        if not typed.strip():
            return state, None
        if not asked.at_reason:
            return replace(state, asked=replace(asked, at_reason=True)), None
        act = Act(asked.deed, queue=asked.queue, by=asked.by.strip(), reason=asked.reason.strip())
        return replace(state, asked=None, by=act.by, note="…"), act
    if key == "backspace":
        typed = typed[:-1]
    elif len(key) == 1 and (key == " " or printable(key) == key):
        typed = (typed + key)[:MOST_TYPED]
    told = replace(asked, reason=typed) if asked.at_reason else replace(asked, by=typed)
    return replace(state, asked=told), None
