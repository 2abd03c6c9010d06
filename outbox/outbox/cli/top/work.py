"""Reads and changes for the screen, on a thread of its own: a database that doesn't answer keeps no key waiting."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from uuid import UUID

import psycopg
import sqlalchemy as sa

from outbox.cli.dead_options import changing
from outbox.cli.explain import explanation_lines
from outbox.cli.job_columns import start_of
from outbox.cli.output import open_link
from outbox.cli.timeline import timeline_lines
from outbox.cli.top.reading import Picture, read_picture
from outbox.cli.top.state import Act, Deed, JobLine
from outbox.database.link import Link
from outbox.database.trouble import reason_of
from outbox.errors import OutboxError
from outbox.explaining.explaining import explain_job
from outbox.explaining.history import read_history
from outbox.explaining.timeline import timeline
from outbox.operating.pausing import PauseScope, pause, resume
from outbox.processes.backoff import Backoff
from outbox.reading.jobs import database_time, known_job
from outbox.reading.searching import search_jobs
from outbox.settings import Settings
from outbox_schemas import JobView

__all__ = ["Answer", "Worker"]

_STATEMENT_S = 5
_JOBS = 200
_SEARCH_S = 0.2
_LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an act, or a new picture: what is not None is news."""

    act: Act | None = None
    picture: Picture | None = None
    jobs: tuple[JobLine, ...] | None = None
    text: tuple[str, ...] | None = None
    note: str | None = None


@dataclass
class Worker:
    """Looks every so many seconds, and does what it is asked in between. One thread; `answers` is read by another."""

    settings: Settings
    every_s: float
    answers: queue.SimpleQueue[Answer] = field(default_factory=queue.SimpleQueue)
    _asked: queue.Queue[Act] = field(default_factory=lambda: queue.Queue(maxsize=8))

    def start(self) -> None:
        """Start. The thread ends with the process: it may hang in a connection that nobody answers."""
        threading.Thread(target=self._run, name="outbox-top", daemon=True).start()

    def ask(self, act: Act) -> bool:
        """Have something done next; False if too much waits already."""
        try:
            self._asked.put_nowait(act)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        backoff = Backoff(0.5, _LONGEST_PAUSE_S)
        next_at = 0.0
        with open_link(self.settings, application_name="outbox-cli/top") as link:
            while True:
                act = self._next(next_at - time.monotonic())
                try:
                    answer = self._answer(link, act)
                except Exception as error:  # noqa: BLE001 - the screen tells it, and goes on
                    answer = Answer(act, note=_told(error))
                    if act.deed is Deed.LOOK or not isinstance(error, OutboxError):
                        next_at = time.monotonic() + max(backoff.next_s(), self.every_s)
                else:
                    backoff.reset()
                    if answer.picture is not None:
                        next_at = time.monotonic() + self.every_s
                self.answers.put(answer)

    def _next(self, wait_s: float) -> Act:
        try:
            return self._asked.get(timeout=max(wait_s, 0.01))
        except queue.Empty:
            return Act(Deed.LOOK)

    def _answer(self, link: Link, act: Act) -> Answer:
        note = self._change(act) if act.deed in {Deed.PAUSE, Deed.RESUME} else None
        with link.transaction():
            link.run("limit_statements", milliseconds=_STATEMENT_S * 1000)
            if act.deed is Deed.OPEN:
                return Answer(act, jobs=_jobs(link, act.queue))
            if act.job is not None:
                return Answer(act, text=_text(link, act.deed, act.job))
            return Answer(act, picture=read_picture(link), note=note)

    def _change(self, act: Act) -> str:
        schema = self.settings.schema_name
        with changing(self.settings) as connection:
            if act.deed is Deed.PAUSE:
                done = pause(connection, PauseScope.QUEUE, act.queue, by=act.by, reason=act.reason, schema=schema)
                return (
                    f"{done.pause} is paused" if done.begun else f"{done.pause} was paused already by {done.pause.by}"
                )
            ended = resume(connection, PauseScope.QUEUE, act.queue, by=act.by, reason=act.reason, schema=schema)
            return f"queue {act.queue} was not paused" if ended is None else f"queue {act.queue} is resumed"


def _told(error: Exception) -> str:
    if isinstance(error, psycopg.Error | sa.exc.DBAPIError):
        return f"the database is away or refuses: {reason_of(error)}"
    return str(error) if isinstance(error, OutboxError) else f"unexpected {type(error).__name__}"


def _jobs(link: Link, name: str) -> tuple[JobLine, ...]:
    found = search_jobs(link, queue=name, limit=_JOBS, within_s=_SEARCH_S)
    return tuple(JobLine(job.id, _line(job)) for job in found.jobs)


def _line(job: JobView) -> str:
    error = "" if job.last_error is None else f"  {job.last_error.code}"
    progress = "" if job.owed is None or job.owed.progress is None else f"  at {job.owed.progress}"
    head = f"{job.id}  {job.state:<9}  {job.kind} {job.logical_key}"
    return f"{head}  attempts {job.attempt_count}  run at {start_of(job)}{error}{progress}"


def _text(link: Link, deed: Deed, job_id: UUID) -> tuple[str, ...]:
    if deed is Deed.EXPLAIN:
        return tuple(explanation_lines(explain_job(link, known_job(link, job_id))))
    page = read_history(link, job_id)
    return tuple(timeline_lines(page, timeline(page.history), database_time(link)))
