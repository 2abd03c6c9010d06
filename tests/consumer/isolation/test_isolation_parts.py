"""The parts of process isolation that need no process: terms, frames, causes, and which child is lent."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.texts import masking
from outbox_consumer import AsyncHandler, Handler, HandlerError, TerminalError
from outbox_consumer.contract.classifying import meaning_of
from outbox_consumer.contract.isolation_terms import MIB, Terms, terms_of
from outbox_consumer.failing.failures import Reported, failure_of, least_wait_s
from outbox_consumer.isolation import pool
from outbox_consumer.isolation.causes import MEMORY_NOTE, failure_of_exit
from outbox_consumer.isolation.forwarding import Forwarder, take
from outbox_consumer.isolation.frames import Frames, FrameTooLarge, Kind, frame, json_frame
from outbox_consumer.isolation.hello import hello_for
from outbox_consumer.isolation.slots import ProcessSlots
from support.consuming import Desk, Task, handler
from support.isolated import ScriptHandler, StrictHandler

TERMS = Terms(None, None, MIB, max_jobs=3, max_age_s=60)


def declared(**attributes: Any) -> type[Any]:
    """Return a handler class with these attributes."""
    return type("Declared", (Handler,), {"payload_type": Task, "handle": lambda *_: None} | attributes)


def test_terms_are_those_declared() -> None:
    """Processor time is whole seconds, rounded up; a handler on threads has no terms."""
    assert terms_of(StrictHandler) == Terms(256 * MIB, 1, MIB, 1000, 3600.0)
    assert terms_of(declared(isolation="process", cpu_limit=timedelta(seconds=1.2))) == Terms(
        None, 2, 8 * MIB, 1000, 3600.0
    )
    assert terms_of(declared()) is None


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("isolation", "container"),
        ("memory_limit", 1000),
        ("memory_limit", 2.5 * 1024**3),
        ("memory_limit", True),
        ("cpu_limit", 30),
        ("cpu_limit", timedelta(milliseconds=1)),
        ("output_limit", None),
        ("output_limit", 1 << 40),
        ("max_jobs_per_child", 0),
        ("max_child_age", timedelta(0)),
    ],
)
def test_term_out_of_bounds_is_refused(attribute: str, value: Any) -> None:
    """The error names the class's attribute, when the class is defined."""
    with pytest.raises(HandlerError, match=f"Declared.{attribute}"):
        declared(**({"isolation": "process"} | {attribute: value}))


def test_limit_without_a_process_is_refused() -> None:
    """A limit that nothing would enforce is a mistake, and so is a process for an async handler."""
    with pytest.raises(HandlerError, match=r'memory_limit limits nothing on a thread; add isolation = "process"'):
        declared(memory_limit=512 * MIB)
    with pytest.raises(HandlerError, match="is for Handler"):

        class _Async(AsyncHandler[Task]):
            isolation = "process"

            async def handle(self, job: Any, payload: Any) -> None:
                """Do nothing."""


def test_handler_that_no_child_could_make_is_refused(desk: Desk) -> None:
    """A class inside a function or in the main file, or an instance that can't be pickled, is refused at the start."""
    with pytest.raises(HandlerError, match="at the top of a module"):
        desk.start(handler(isolation="process"))
    main = declared(isolation="process", __module__="__main__")
    with pytest.raises(HandlerError, match="main file"):
        hello_for(main(), desk.settings(), TERMS)


@given(
    bodies=st.lists(st.tuples(st.sampled_from(list(Kind)), st.binary(max_size=300)), max_size=6),
    cuts=st.lists(st.integers(1, 50), min_size=1, max_size=40),
)
def test_frames_arrive_whole_in_whatever_pieces(bodies: list[tuple[Kind, bytes]], cuts: list[int]) -> None:
    """However the bytes are cut, the same frames come out, in order."""
    data = b"".join(frame(kind, body) for kind, body in bodies)
    frames, found = Frames(1000), []
    while data:
        size = cuts[len(data) % len(cuts)]
        found += list(frames.feed(data[:size]))
        data = data[size:]
    assert found == bodies


@pytest.mark.parametrize("data", [b"\x08\xff\xff\xff\xff", b"\x63\x00\x00\x00\x00", b"Traceback (most"])
def test_frame_beyond_the_limit_is_not_waited_for(data: bytes) -> None:
    """An announced length or kind that can't be is refused before its body is read."""
    with pytest.raises(FrameTooLarge):
        list(Frames(1000).feed(data))


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        (0, b"", "child_exit_0"),
        (3, b"", "child_exit_3"),
        (1, MEMORY_NOTE, "memory_limit"),
        (-9, b"", "child_signal_SIGKILL"),
        (-9, MEMORY_NOTE, "memory_limit"),
        (-24, b"", "cpu_limit"),
        (-11, b"Fatal \xff\x00 error", "child_signal_SIGSEGV"),
        (-40, b"", "child_signal_40"),
    ],
)
def test_end_of_a_process_has_a_code(code: int, words: bytes, expected: str) -> None:
    """Each end is retryable, with what the process could still say made fit to be stored."""
    failure = failure_of_exit(code, words, TERMS)
    assert (failure.error_class, failure.code) == ("retryable", expected)
    assert "\x00" not in (failure.traceback or "")


def test_failure_of_another_process_is_classified_there() -> None:
    """A handler's `classify` sees exceptions, never what a child has made of them."""
    reported = Reported(failure_of_exit(3, b"", TERMS), 5.0)
    judging = handler(classify=lambda _self, _error: TerminalError("all is lost"))
    assert meaning_of(judging, reported) is reported
    assert (failure_of(reported, reported).code, least_wait_s(reported)) == ("child_exit_3", 5.0)


@pytest.mark.usefixtures("fresh_registry")
def test_log_record_travels_as_texts(caplog: pytest.LogCaptureFixture) -> None:
    """Facts of any type, names of logging's own and a broken `__str__` do no harm on either side."""

    class Broken:
        def __str__(self) -> str:
            raise ValueError

    sent: list[bytes] = []
    record = logging.makeLogRecord(
        {"name": "x", "levelno": logging.ERROR, "msg": "m %s", "args": (5,), "page": 1 << 70, "card": 41112222}
    )
    masking.register("41112222")
    Forwarder(sent.append).emit(record)
    Forwarder(sent.append).emit(logging.makeLogRecord({"msg": "%s", "args": (Broken(),)}))
    assert len(sent) == 1
    ((kind, body),) = Frames(10_000).feed(sent[0])
    assert kind is Kind.LOG
    fields = json.loads(body)
    assert fields["facts"] == {"page": 1 << 70, "card": "***"}
    ((_, changed),) = Frames(10_000).feed(json_frame(Kind.LOG, **fields | {"facts": {"msg": 1, "page": 2}}))
    take(changed, "job-1")
    (taken,) = caplog.records
    assert (taken.getMessage(), taken.page, taken.job_id) == ("m 5", 2, "job-1")  # type: ignore[attr-defined]


class FakeChild:
    """A child that only counts."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.jobs, self.started_at, self.answered = terms, 0, 0.0, True
        self.events: list[str] = []
        self.is_gone = False

    def greet(self, _hello: bytes) -> None:
        """Start."""
        self.events.append("greeted")

    def gone(self) -> bool:
        """Tell what the test says."""
        return self.is_gone

    def kill(self) -> None:
        """Note it."""
        self.events.append("killed")

    def dismiss(self) -> None:
        """Be gone from now on."""
        self.is_gone = True

    def end(self) -> None:
        """Note it."""
        self.events.append("ended")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any, list[float]]:
    """Return a pool of two, its two handlers, and the clock that it reads."""
    clock = [0.0]
    monkeypatch.setattr(pool, "Child", FakeChild)
    monkeypatch.setattr(
        pool, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s))
    )
    one, two = ScriptHandler(), StrictHandler()
    return pool.Children(2, [(one, b"1", TERMS), (two, b"2", TERMS)]), one, two, clock


def test_idle_child_is_lent_again_until_it_is_used_up(children: Any) -> None:
    """A child is replaced after its number of jobs, its age, a death while it was idle, or an end out of order."""
    lending, one, _, clock = children

    def after(spoil: Callable[[Any], object]) -> bool:
        """Tell whether a new one is lent after that."""
        child = lending.borrow(one)
        spoil(child)
        lending.give_back(one, child)
        other = lending.borrow(one)
        lending.give_back(one, other)
        return other is not child

    assert not after(lambda child: setattr(child, "jobs", 2))
    assert after(lambda child: setattr(child, "jobs", 3))
    assert after(lambda child: setattr(child, "is_gone", True))
    assert after(lambda child: setattr(child, "answered", False))
    assert after(lambda _: clock.__setitem__(0, clock[0] + 61))


def test_child_of_another_handler_gives_way_when_all_places_are_taken(children: Any) -> None:
    """There are never more children than slots; the one that has been idle for longest goes."""
    lending, one, two, _ = children
    first, second = lending.borrow(one), lending.borrow(one)
    lending.give_back(one, first)
    lending.give_back(one, second)
    third = lending.borrow(two)
    assert (first.events[-1], second.events, third.events) == ("ended", ["greeted"], ["greeted"])
    lending.close()
    assert second.events[-1] == "ended"
    assert third.events[-1] == "killed"


def test_no_interpreter_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in which Python is embedded has no interpreter to start; it is told so at once."""
    monkeypatch.setattr("sys.executable", "")
    nothing: Any = None
    with pytest.raises(HandlerError, match=r"sys\.executable"):
        ProcessSlots(1, nothing, nothing, handlers=[ScriptHandler()], settings=nothing)
