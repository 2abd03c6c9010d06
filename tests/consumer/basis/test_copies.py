"""A forked copy of a worker that comes back out of user code: it ends, and no job ever hears of it."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox.processes.signals import counted_signals
from outbox_consumer.basis.errors import MisuseError
from outbox_consumer.contract.isolation_terms import MIB, Terms
from outbox_consumer.isolation.causes import MEMORY_NOTE
from outbox_consumer.isolation.course import Course
from outbox_consumer.isolation.frames import Kind, frame, json_frame
from outbox_consumer.isolation.process import Child
from support.consuming import AsyncTask, Desk, async_handler, handler
from support.isolated import ScriptHandler
from support.isolated_payloads import submit
from support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def copied(codes: dict[str, int | str], place: str) -> None:
    """Fork; the copy leaves by `SystemExit`. Note how it ends; one that goes on is ended after 20 s."""
    copy = os.fork()
    if copy == 0:
        raise SystemExit(7)
    until_at = time.monotonic() + 20
    while time.monotonic() < until_at:
        found, status = os.waitpid(copy, os.WNOHANG)
        if found:
            codes[place] = os.waitstatus_to_exitcode(status)
            return
        time.sleep(0.01)
    codes[place] = "went on"
    with suppress(OSError):
        os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)


def test_no_copy_leaves_user_code_on_a_thread(desk: Desk) -> None:
    """Wherever user code forks, its copy ends where it would come back, with the exit code that it asked for."""
    codes: dict[str, int | str] = {}

    def handle(job: Any, _payload: Any) -> None:
        copied(codes, f"handle {job.attempt}")
        job.effect("charge", {}, send=lambda *_: copied(codes, "send"))
        with job.transaction():
            copied(codes, "transaction")
        if job.attempt == 1:
            raise ConnectionError

    forking = handler(
        handle,
        lambda *_: copied(codes, "apply"),
        load=lambda self, text, _version: copied(codes, "load") or self.payload_type.model_validate_json(text),
        classify=lambda *_: copied(codes, "classify"),
    )
    [job_id] = desk.submit("forks")
    desk.start(forking)
    until(lambda: desk.state(job_id) == "succeeded", within_s=120)
    places = ("handle 1", "handle 2", "send", "transaction", "apply", "load", "classify")
    assert codes == dict.fromkeys(places, 7)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]


def _effect(job: Any, marks: Path) -> None:
    job.effect("charge", {}, send=lambda *_: (marks / "sent").touch())


def _transaction(job: Any, marks: Path) -> None:
    with job.transaction():
        (marks / "begun").touch()


@pytest.mark.parametrize("does", [_effect, _transaction])
def test_a_copy_does_nothing_in_its_job(desk: Desk, tmp_path: Path, does: Any) -> None:
    """What a copy begins in the job that it was forked from nobody would end: refused before it is written or sent."""
    codes: list[int] = []

    def handle(job: Any, _payload: Any) -> None:
        copy = os.fork()
        if copy == 0:
            try:
                does(job, tmp_path)
            except MisuseError:
                os._exit(9)
            os._exit(1)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))

    [job_id] = desk.submit("forks")
    desk.start(handler(handle))
    desk.done(1)
    assert (codes, list(tmp_path.iterdir()), desk.database.count("effects")) == ([9], [], 0)
    assert desk.outcomes(job_id) == ["succeeded"]


def test_no_copy_leaves_user_code_on_an_event_loop(desk: Desk) -> None:
    """Before and after it has waited for something, on the loop and on a helper thread."""
    codes: dict[str, int | str] = {}

    async def handle(_job: Any, _payload: Any) -> None:
        copied(codes, "first step")
        await asyncio.sleep(0)
        copied(codes, "later step")
        await asyncio.to_thread(copied, codes, "thread")

    [job_id] = desk.submit("forks", payload=AsyncTask)
    desk.start(async_handler(handle))
    until(lambda: desk.state(job_id) == "succeeded", within_s=120)
    assert codes == {"first step": 7, "later step": 7, "thread": 7}


@pytest.mark.parametrize(
    ("does", "codes"), [("copies_itself", f"[0, 5, -{int(signal.SIGTERM)}]"), ("copies_itself_in_c", "1")]
)
def test_no_copy_of_a_handlers_process_answers(desk: Desk, tmp_path: Path, does: str, codes: str) -> None:
    """The job's result is the original's, and the jobs after it in that process have results of their own."""
    desk.start(ScriptHandler(), concurrency=1)
    submit(desk, does, tmp_path)
    desk.done(1, timeout_s=90)
    for _ in range(3):
        submit(desk, "named", tmp_path)
    desk.done(4, timeout_s=90)
    results = desk.database.rows(
        "SELECT j.logical_key, e.note FROM public.effects AS e JOIN {s}.jobs AS j ON j.id = e.job_id"
    )
    expected = {key: key if key.startswith("named") else f"original {codes}" for key, _ in results}
    assert {key: note.rpartition(" by ")[0] for key, note in results} == expected
    assert len(results) == 4


class ToldChild:
    """A child that says what the test has it say, all at once."""

    def __init__(self, *frames: bytes) -> None:
        self.terms = SimpleNamespace(output_bytes=1000)
        self.line = SimpleNamespace(send=lambda _data: None)
        self.pid, self.jobs, self.printed, self.answered = 1, 0, 0, True
        self._frames = [(Kind(data[0]), data[5:]) for data in frames]

    def clear(self) -> None:
        """Do nothing."""

    def gone(self) -> bool:
        """Never."""
        return False

    def listen(self, _timeout_s: float) -> list[tuple[Kind, bytes]]:
        """Return all that it says."""
        said, self._frames = self._frames, []
        return said


def answer(token: Any, result: str) -> bytes:
    """Return a result's frame."""
    return frame(Kind.RESULT, token.bytes + pickle.dumps(result))


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.FAILED, Kind.LEASE_LOST])
def test_an_answer_for_another_attempt_counts_for_nothing(kind: Kind) -> None:
    """The attempt gets its own answer, and the process is not used again."""
    own, other = uuid4(), uuid4()
    foreign = answer(other, "foreign") if kind is Kind.RESULT else json_frame(kind, lease=other.hex)
    child = ToldChild(foreign, answer(own, "own"))
    assert course(child, own).run() == "own"
    assert not child.answered


def test_what_is_said_of_another_attempt_counts_for_nothing() -> None:
    """Neither its transactions, for which an end would wait, nor its effects or its progress. Of its own none is left
    open once it is over, however that came.
    """
    own, other = uuid4(), uuid4()
    said: list[Any] = []

    def of(lease: UUID, mark: int) -> list[bytes]:
        return [
            json_frame(Kind.FENCE, lease=lease.hex, open=mark),
            json_frame(Kind.EFFECT, lease=lease.hex, name=str(mark), begins=True),
            json_frame(Kind.PROGRESS, lease=lease.hex, marker=str(mark), at=mark),
        ]

    follows = course(ToldChild(*of(other, 7), *of(own, 1), answer(own, "own")), own)
    job: Any = follows._entry.job
    job.hold_open, job.moved = said.append, lambda *moved: said.append(moved)
    job.note_effect = lambda name, *, begins: said.append((name, begins))
    job.forget_calls = lambda: said.append("over")
    assert follows.run() == "own"
    assert said == [1, ("1", True), ("1", 1), 0, "over"]


def test_a_process_that_answers_twice_is_not_used_again() -> None:
    """The first answer of its own counts."""
    own = uuid4()
    twice, once = ToldChild(answer(own, "own"), answer(own, "again")), ToldChild(answer(own, "own"))
    assert [course(child, own).run() for child in (twice, once)] == ["own", "own"]
    assert (twice.answered, once.answered) == (False, True)


def course(child: Any, token: Any) -> Course:
    """Return the course of an attempt that holds this token."""
    lease = SimpleNamespace(token=token)
    entry: Any = SimpleNamespace(
        lease=lease,
        claimed=None,
        trusted_until=0.0,
        job=SimpleNamespace(hold_open=lambda _count: None, forget_calls=lambda: None, is_lost=False),
    )
    return Course(child, entry, lambda: (1.0, 3.0))


def test_a_copy_of_a_worker_can_be_ended() -> None:
    """SIGTERM, which the worker itself only counts, ends a copy, as `multiprocessing` needs it for its workers."""
    with counted_signals() as requests:
        reading, writing = os.pipe()
        copy = os.fork()
        if copy == 0:
            os.write(writing, b"x")  # Python drops signals that come while it forks
            time.sleep(20)
            os._exit(0)
        os.read(reading, 1)
        os.close(reading)
        os.close(writing)
        os.kill(copy, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == -signal.SIGTERM
    assert requests.count == 0


def test_earlier_last_words_are_not_a_later_end() -> None:
    """What a copy or a thread has left in the pipe for a crash is not told of the next attempt's."""
    child = Child.__new__(Child)
    child._output, printing = os.pipe()
    child._last_words, saying = os.pipe()
    for descriptor in (child._output, child._last_words):
        os.set_blocking(descriptor, False)
    child.terms, child.printed = Terms(None, None, MIB, 10, 60.0), 0
    process: Any = SimpleNamespace(poll=lambda: None, wait=lambda: -9)
    child._process = process
    try:
        os.write(saying, MEMORY_NOTE)
        child.clear()
        assert child.failure().code == "child_signal_SIGKILL"
    finally:
        for descriptor in (child._output, printing, child._last_words, saying):
            os.close(descriptor)
