"""What a job waits for is decided for every state and phase, by its rows and what surrounds them alone."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outbox.explaining.key_reasons import KeyAround, held_by_key
from outbox.explaining.limit_reasons import LimitsAround
from outbox.explaining.reasons import NO_HANDLER, NOT_DUE, UNKNOWN_KEY, explanation_of
from outbox.explaining.remedies import REMEDIES, resuming
from outbox.explaining.row_holders import RowHolder
from outbox.explaining.surroundings import AHEAD_LIMIT, Surroundings
from outbox.keeping.keys import KEY_WAITS
from outbox.keeping.pauses import PAUSED
from outbox.operating.pausing import Pause, PauseScope
from outbox.policy.limiting import Rule, Tokens
from outbox.submitting.submission import HELD
from outbox.texts.spans import span
from outbox_schemas import ErrorView, JobState, JobView, OwedView, Phase, Reason
from outbox_schemas.explanations import AwaitedJob, AwaitedSet
from outbox_schemas.views import CancelledAfter

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def job(state: JobState | str = JobState.READY, owed: OwedView | None = None, **fields: Any) -> JobView:
    """Return a job in `state`."""
    base = dict.fromkeys(JobView.model_fields) | {
        "id": UUID(int=1),
        "tenant": "default",
        "kind": "k",
        "logical_key": "key",
        "version": 1,
        "queue": "default",
        "priority": 0,
        "attempt_count": 0,
        "budget_start": 0,
        "uncharged_attempts": 0,
        "run_at": NOW,
        "created_at": NOW,
    }
    return JobView(**(base | {"state": state, "owed": owed} | fields))


def owed(
    phase: Phase,
    due_in_s: float | None = 0,
    released_ago_s: float | None = None,
    lease_left_s: float | None = None,
    last_error: str | None = None,
    needs_key: str | None = None,
) -> OwedView:
    """Return an outbox row in `phase`."""
    return OwedView(
        phase=phase,
        due_at=None if due_in_s is None else NOW + timedelta(seconds=due_in_s),
        released_at=None if released_ago_s is None else NOW - timedelta(seconds=released_ago_s),
        release_count=1,
        lease_expires_at=None if lease_left_s is None else NOW + timedelta(seconds=lease_left_s),
        last_error=last_error,
        needs_key=needs_key,
    )


STOPPED = AwaitedJob(
    job_id=UUID("01a22a2c-0000-7000-8000-000000000000"),
    kind="step",
    logical_key="fi-0",
    state=JobState.FAILED,
    stopped=True,
)
STAFFED = Surroundings(NOW, relays=1, consumers=3, able=2)
ALONE = Surroundings(NOW)
FOREIGN = Surroundings(NOW, relays=1, consumers=3)
READY, RUNNING = JobState.READY, JobState.RUNNING
CLOSED = Pause(PauseScope.QUEUE, "default", "ada", "the bank is closed", NOW - timedelta(hours=1))

NOBODY = "a consumer that can run it: none was seen lately that works for queue default and runs k version 1"
NONE_ABLE = "a consumer that can run it: none of the 3 seen lately works for queue default and runs k version 1"


def error(code: str) -> ErrorView:
    """Return an error of that code."""
    return ErrorView(error_class="unknown", code=code, message="a message that may hold anything")


SITUATIONS: list[tuple[JobView, Surroundings, str, list[Reason]]] = [
    (job(owed=owed(Phase.OWED, 5)), ALONE, "its time: ready, due in 5.0 s", [Reason.NOT_DUE]),
    (
        job(owed=owed(Phase.OWED, 5)),
        replace(STAFFED, pauses=(CLOSED,)),
        "a person: queue default is paused by ada: the bank is closed",
        [Reason.PAUSED, Reason.NOT_DUE],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(ALONE, pauses=(CLOSED,)),
        "a person: queue default is paused by ada: the bank is closed",
        [Reason.PAUSED],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, holders=(RowHolder("queue", 4711, "psql", "ada", NOW, 40.0),)),
        "the end of a transaction, open for 40 s: session 4711 (application psql, user ada) holds the limits of queue "
        "default, of which nothing is released meanwhile",
        [Reason.ROW_HELD, Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.RELEASED, 5, 1)),
        replace(STAFFED, holders=(RowHolder("job", 4711),)),
        "the end of a transaction: session 4711 holds its row",
        [Reason.ROW_HELD, Reason.HINT_RELEASED],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(5), Rule(), queue_used=5)),
        "a free slot: of queue default 5 may run, and 5 run or are about to",
        [Reason.QUEUE_LIMIT, Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(5), Rule(1), queue_used=4, tenant_used=1)),
        "a free slot: of tenant default in queue default 1 may run, and 1 run or are about to",
        [Reason.TENANT_LIMIT, Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(None, 10, 5), Rule(None, 1, 1), Tokens(0.0, NOW), Tokens(0.5, NOW))),
        "its turn: of queue default 10 may start in a second, and so many just have",
        [Reason.RATE_LIMIT, Reason.RATE_LIMIT, Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED, -9, last_error=KEY_WAITS), limit_key="account 1"),
        replace(STAFFED, key=KeyAround(2, under_way=2)),
        "a free slot: of its key account 1 2 may run, and 2 run or are about to",
        [Reason.KEY_LIMIT],
    ),
    (
        job(owed=owed(Phase.OWED, -9, last_error=KEY_WAITS), limit_key="account 1"),
        replace(STAFFED, key=KeyAround(1, 1, before=UUID(int=7))),
        "job 00000000-0000-0000-0000-000000000007 of its key account 1, which was submitted before it",
        [Reason.KEY_ORDER],
    ),
    (
        job(owed=owed(Phase.OWED, -1), limit_key="account 1"),
        replace(STAFFED, key=KeyAround(1, failed=UUID(int=7))),
        "a person: job 00000000-0000-0000-0000-000000000007 of its key account 1 comes before it, and has failed",
        [Reason.KEY_BLOCKED, Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED, -9, last_error=KEY_WAITS), limit_key="account 1"),
        replace(STAFFED, key=KeyAround(1, following=UUID(int=7))),
        "its turn: job 00000000-0000-0000-0000-000000000007 is next of its key account 1, for seconds if it can't go",
        [Reason.KEY_LIMIT],
    ),
    (
        job(owed=owed(Phase.OWED, -9, last_error=KEY_WAITS), limit_key="account 1"),
        replace(STAFFED, key=KeyAround(1)),
        "the relay: its key has room, and it is put back in line next",
        [Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(5, 10, 5), Rule(1), queue_used=4)),
        "the relay: owed, a hint goes out next (due for 0.0 s)",
        [Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED, None, last_error=PAUSED), deadline_at=NOW + timedelta(days=1)),
        replace(STAFFED, pauses=(replace(CLOSED, scope=PauseScope.TENANT, name="a"), replace(CLOSED, name="b"))),
        "a person: tenant a is paused by ada: the bank is closed",
        [Reason.PAUSED, Reason.PAUSED],
    ),
    (
        job(owed=owed(Phase.OWED, None, last_error=PAUSED)),
        STAFFED,
        "the relay: its pause is over, and it is put back in line next",
        [Reason.PAUSED],
    ),
    (
        job(owed=owed(Phase.OWED, (HELD - NOW).total_seconds()), deadline_at=NOW + timedelta(days=1)),
        replace(STAFFED, awaited=AwaitedSet(until="ended", members=4, left=3, stopped=0, shown=())),
        "the jobs of its set: 3 still to end",
        [Reason.JOBS_AWAITED],
    ),
    (
        job(owed=owed(Phase.OWED, (HELD - NOW).total_seconds())),
        replace(STAFFED, awaited=AwaitedSet(until="succeeded", members=2, left=1, stopped=1, shown=(STOPPED,))),
        "a person: 1 of the 2 jobs of its set had to succeed and has not"
        " (step fi-0 01a22a2c-0000-7000-8000-000000000000: failed)",
        [Reason.SET_UNMET],
    ),
    (
        job(owed=owed(Phase.OWED, 5, last_error=NOT_DUE)),
        STAFFED,
        "its time: ready, due in 5.0 s",
        [Reason.NOT_DUE],
    ),
    (
        job(owed=owed(Phase.OWED, 5, last_error="the row was mended"), run_at=NOW + timedelta(seconds=5)),
        STAFFED,
        "its time: ready, due in 5.0 s",
        [Reason.NOT_DUE],
    ),
    (
        job(
            owed=owed(Phase.OWED, 5, last_error="the row was lost"),
            attempt_count=1,
            run_at=NOW + timedelta(seconds=5),
            last_error=error("Timeout"),
        ),
        STAFFED,
        "its next try: attempt 1 is over (it ended with Timeout), tried again in 5.0 s",
        [Reason.RETRY_WAITS],
    ),
    (
        job(owed=owed(Phase.OWED, 90), deadline_at=NOW + timedelta(seconds=30)),
        STAFFED,
        "its time: ready, due in 1 min 30 s",
        [Reason.NOT_DUE, Reason.DEADLINE_NEARS],
    ),
    (
        job(
            owed=owed(Phase.OWED, 30),
            attempt_count=2,
            run_at=NOW + timedelta(seconds=30),
            last_error=error("Timeout"),
        ),
        STAFFED,
        "its next try: attempt 2 is over (it ended with Timeout), tried again in 30 s",
        [Reason.RETRY_WAITS],
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error=NO_HANDLER)),
        FOREIGN,
        "a consumer that can run it: no handler here for its kind and version; offered again in 2.0 s",
        [Reason.KIND_UNSUPPORTED, Reason.NO_CONSUMER],
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error=NO_HANDLER)),
        STAFFED,
        "a consumer that can run it: no handler here for its kind and version; offered again in 2.0 s",
        [Reason.KIND_UNSUPPORTED],
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error=UNKNOWN_KEY, needs_key="2026-11")),
        STAFFED,
        "a consumer that has its key: unknown key 2026-11; offered again in 2.0 s",
        [Reason.KEY_UNKNOWN],
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error="the row was mended")),
        STAFFED,
        "its time: the row was mended; offered again in 2.0 s",
        [Reason.NOT_DUE],
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error="the broker refused the hint")),
        STAFFED,
        "the relay: the broker refused the hint; offered again in 2.0 s",
        [Reason.HINT_REFUSED],
    ),
    (
        job(owed=owed(Phase.OWED, -0.2, last_error="hint\x1b lost")),
        STAFFED,
        "the relay: owed, a hint goes out next (due for 0.2 s); before: hint lost",
        [Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED, -65)),
        STAFFED,
        "the relay: owed, a hint goes out next (due for 1 min 5 s)",
        [Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED, -65)),
        Surroundings(NOW, relays=1, consumers=1, able=1, ahead=412),
        "its turn: 412 due before it in its queue (due for 1 min 5 s)",
        [Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.OWED, -65)),
        Surroundings(NOW, relays=1, consumers=1, able=1, ahead=AHEAD_LIMIT),
        "its turn: 1000 or more due before it in its queue (due for 1 min 5 s)",
        [Reason.HINT_OWED],
    ),
    (job(owed=owed(Phase.OWED, -65)), ALONE, NOBODY, [Reason.NO_CONSUMER, Reason.NO_RELAY, Reason.HINT_OWED]),
    (job(owed=owed(Phase.OWED, -65)), FOREIGN, NONE_ABLE, [Reason.NO_CONSUMER, Reason.HINT_OWED]),
    (
        job(owed=owed(Phase.OWED, -65)),
        Surroundings(NOW, consumers=1, able=1),
        "a relay: none was seen lately",
        [Reason.NO_RELAY, Reason.HINT_OWED],
    ),
    (
        job(owed=owed(Phase.RELEASED, 8, 2, last_error=NO_HANDLER)),
        STAFFED,
        "a consumer: released 2.0 s ago; if nobody claims it, the hint is owed again in 8.0 s; "
        "before: no handler here for its kind and version",
        [Reason.HINT_RELEASED],
    ),
    (
        job(owed=owed(Phase.RELEASED, 8, 2)),
        STAFFED,
        "a consumer: released 2.0 s ago; if nobody claims it, the hint is owed again in 8.0 s",
        [Reason.HINT_RELEASED],
    ),
    (job(owed=owed(Phase.RELEASED, 8, 2)), ALONE, NOBODY, [Reason.NO_CONSUMER, Reason.HINT_RELEASED]),
    (
        job(owed=owed(Phase.RELEASED, -1, 30)),
        STAFFED,
        "the relay: released 30 s ago and not claimed, so the hint is owed again next",
        [Reason.HINT_LOST],
    ),
    (
        job(owed=owed(Phase.RELEASED, 8, 2), deadline_at=NOW - timedelta(seconds=3)),
        STAFFED,
        "the relay: its deadline passed 3.0 s ago, so it fails next",
        [Reason.DEADLINE_PASSED],
    ),
    (
        job(RUNNING, owed(Phase.LEASED, lease_left_s=20), lease_owner="w-1", attempt_count=2),
        STAFFED,
        "the end of attempt 2 by w-1: leased until 12:00:20Z, 20 s from now unless a heartbeat renews it",
        [Reason.RUNNING],
    ),
    (
        job(RUNNING, owed(Phase.LEASED, lease_left_s=20), lease_owner="w-1", deadline_at=NOW - timedelta(seconds=3)),
        STAFFED,
        "the end of attempt 0 by w-1: leased until 12:00:20Z, 20 s from now unless a heartbeat renews it",
        [Reason.RUNNING, Reason.DEADLINE_PASSED],
    ),
    (
        job(RUNNING, owed(Phase.LEASED, lease_left_s=-3), lease_owner="w\x1b-1", attempt_count=2),
        STAFFED,
        "the relay: the lease of attempt 2 by w-1 expired 3.0 s ago, so the job is given back next",
        [Reason.LEASE_EXPIRED],
    ),
    (
        job(RUNNING, owed(Phase.LEASED, lease_left_s=-3), lease_owner="w", attempt_count=2),
        ALONE,
        "the relay: the lease of attempt 2 by w expired 3.0 s ago, so the job is given back next",
        [Reason.LEASE_EXPIRED, Reason.NO_RELAY],
    ),
    (
        job(
            RUNNING,
            owed(Phase.LEASED, lease_left_s=9),
            attempt_count=1,
            cancel_requested_at=NOW,
            cancel_requested_by="ops",
        ),
        STAFFED,
        "the end of attempt 1 by an unknown worker, which ops has asked to be cancelled",
        [Reason.CANCEL_REQUESTED, Reason.RUNNING],
    ),
    (
        job(RUNNING, owed(Phase.LEASED), attempt_count=2),
        STAFFED,
        "the end of attempt 2 by an unknown worker",
        [Reason.RUNNING],
    ),
    (job(JobState.SUCCEEDED), STAFFED, "nothing: it has succeeded", [Reason.SUCCEEDED]),
    (
        job(JobState.FAILED),
        STAFFED,
        "a person: it has failed and is not tried again by itself",
        [Reason.FAILED],
    ),
    (
        job(JobState.FAILED, last_error=error("lease_expired")),
        STAFFED,
        "a person: it has failed (lease_expired) and is not tried again by itself",
        [Reason.FAILED],
    ),
    (
        job(JobState.FAILED, last_error=error("Timeout"), failed_because="attempts_used_up"),
        STAFFED,
        "a person: it has failed (Timeout; attempts_used_up) and is not tried again by itself",
        [Reason.FAILED],
    ),
    (
        job(JobState.FAILED, last_error=error("effect_on_hold")),
        Surroundings(NOW, open_effects=("charge", "mail")),
        "a person: nobody knows whether its effect has happened (charge, mail), so it is on hold",
        [Reason.EFFECT_ON_HOLD],
    ),
    (
        job(JobState.FAILED, last_error=error("effect_on_hold")),
        Surroundings(NOW, discarded=("ada", "paid by hand", NOW)),
        "nothing: it has failed, and ada closed its dead letter: paid by hand",
        [Reason.DISCARDED],
    ),
    (
        job(JobState.FAILED),
        Surroundings(NOW, redrive=("01a2", "paused", NOW)),
        "its turn in redrive 01a2 (paused)",
        [Reason.REDRIVE_WAITS, Reason.FAILED],
    ),
    (
        job(JobState.CANCELLED, cancel_requested_by="ops"),
        STAFFED,
        "nothing: it was cancelled by ops",
        [Reason.CANCELLED],
    ),
    (
        job(
            JobState.CANCELLED,
            cancel_requested_by="writer",
            cancelled_after=CancelledAfter(attempts=0, superseded_by=UUID(int=7)),
        ),
        STAFFED,
        "nothing: a newer job of its subject has come, 00000000-0000-0000-0000-000000000007",
        [Reason.SUPERSEDED],
    ),
    (
        job(),
        STAFFED,
        "nothing, which is a defect: it has not ended and yet has no outbox row",
        [Reason.NOTHING_OWED],
    ),
    (
        job(READY, owed(Phase.LEASED, lease_left_s=9)),
        STAFFED,
        "nothing, which is a defect: it is ready and yet its outbox row is leased",
        [Reason.PHASE_MISMATCH],
    ),
    (
        job("snoozed", owed(Phase.OWED, 5)),
        STAFFED,
        "what a newer release calls snoozed: this release doesn't know that state",
        [Reason.STATE_UNKNOWN],
    ),
]


@pytest.mark.parametrize(("view", "around", "expected", "codes"), SITUATIONS)
def test_every_situation_has_its_reasons(
    view: JobView, around: Surroundings, expected: str, codes: list[Reason]
) -> None:
    """The answer says who acts next, and when; what else stands in the way follows."""
    found = explanation_of(view, around)
    assert found.text == expected
    assert [found.code, *(also.code for also in found.also)] == codes
    assert (found.job_id, found.state, found.at) == (view.id, view.state, NOW)
    assert found.unblocked_by in {
        REMEDIES[found.code],
        *map(resuming, around.pauses if found.code is Reason.PAUSED else ()),
        *(remedy for code, _, remedy in held_by_key(around.key, view.limit_key) if code is found.code),
    }


def test_every_reason_occurs() -> None:
    """No code is there that no situation has."""
    assert {code for *_, codes in SITUATIONS for code in codes} == set(Reason) == set(REMEDIES)


def test_what_the_rows_know_is_dated() -> None:
    """Where its instants are on record, each reason says since when it holds, but for those that the guide names."""
    known = {"attempt_ended_at": NOW, "relay_seen_at": NOW, "able_seen_at": NOW}
    undated: dict[Reason, set[str]] = {}
    for view, around, _, _ in SITUATIONS:
        row = None if view.owed is None else view.owed.model_copy(update={"released_at": view.owed.released_at or NOW})
        dates = dict.fromkeys(("finished_at", "cancel_requested_at", "lease_started_at"), NOW)
        found = explanation_of(view.model_copy(update={"owed": row, **dates}), replace(around, **known))  # type: ignore[arg-type]
        for one in (found, *found.also):
            if one.since is None:
                undated.setdefault(one.code, set()).add(one.text)
    assert len(undated.pop(Reason.PAUSED)) == len(undated.pop(Reason.NOT_DUE)) == 1  # over; of an unknown release
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
    never = page.partition("Never have one: ")[2].partition("\n\n")[0]
    assert set(undated) == set(re.findall(r"`([a-z_]+)`", never)) - {Reason.PAUSED, Reason.NOT_DUE}


def test_an_error_s_message_stays_out() -> None:
    """Only an error's stable code is told: its message may hold anything."""
    for view, around, _, _ in SITUATIONS:
        assert "anything" not in explanation_of(view, around).model_dump_json()


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.99, "10.0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599.7, "1 h"),
        (7800, "2 h 10 min"),
        (360_000, "4 d 4 h"),
    ],
)
def test_spans(seconds: float, expected: str) -> None:
    """Spans are rounded to two units that people can read."""
    assert span(seconds) == expected


def test_the_words_are_those_that_the_statement_writes() -> None:
    """The words that are told apart here stand in the statement that gives hints back."""
    text = files("outbox").joinpath("sql/refuse.sql").read_text(encoding="utf-8")
    assert f"'{NO_HANDLER}'" in text
    assert f"'{NOT_DUE}'" in text


def test_the_guide_lists_every_reason_with_its_remedy() -> None:
    """The operating guide's table has each code, a sentence as it is printed, and what unblocks it."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
    section = page.partition("## Why is this job not running?")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| `([^`]+)` \| (.+) \|$", section, re.MULTILINE)
    assert [code for code, _, _ in rows] == [reason.value for reason in Reason]
    assert {code: remedy for code, _, remedy in rows} == {reason.value: text for reason, text in REMEDIES.items()}
    said: dict[str, set[str]] = {}
    for view, around, _, _ in SITUATIONS:
        found = explanation_of(view, around)
        for finding in (found, *found.also):
            said.setdefault(finding.code, set()).add(finding.text)
    assert not [(code, sentence) for code, sentence, _ in rows if sentence not in said[code]]
