"""Jobs that wait and may not go yet: paused, limited, behind their key or set, not due, or put off."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from outbox.explaining.key_reasons import KeyAround
from outbox.explaining.limit_reasons import LimitsAround
from outbox.explaining.reasons import NO_HANDLER, NOT_DUE, UNKNOWN_KEY
from outbox.explaining.row_holders import RowHolder
from outbox.keeping.keys import KEY_WAITS
from outbox.keeping.pauses import PAUSED
from outbox.operating.pausing import PauseScope
from outbox.policy.limiting import Rule, Tokens
from outbox.submitting.submission import HELD
from outbox_schemas import Phase, Reason
from outbox_schemas.explanations import AwaitedSet
from support.situations.builders import (
    ALONE,
    CLOSED,
    FOREIGN,
    NOW,
    STAFFED,
    STOPPED,
    Situation,
    error,
    job,
    owed,
)

HELD_BACK: list[Situation] = [
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
        [Reason.QUEUE_LIMIT],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(5), Rule(1), queue_used=4, tenant_used=1)),
        "a free slot: of tenant default in queue default 1 may run, and 1 run or are about to",
        [Reason.TENANT_LIMIT],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(0), Rule(0), queue_used=1)),
        "a person: of queue default none may run",
        [Reason.QUEUE_LIMIT, Reason.TENANT_LIMIT],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(None, 10, 5), Rule(None, 1, 1), Tokens(0.0, NOW), Tokens(0.5, NOW))),
        "its turn: of queue default 10 may start in a second, and so many just have",
        [Reason.RATE_LIMIT, Reason.RATE_LIMIT],
    ),
    (
        job(owed=owed(Phase.OWED)),
        replace(STAFFED, limits=LimitsAround(Rule(None, 10, 5), Rule(None, 1, 3), queue_out=4, tenant_out=3)),
        "its turn: of tenant default in queue default 3 may start at once, and 3 hints are out that nobody has claimed",
        [Reason.RATE_LIMIT],
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
        job(owed=owed(Phase.OWED, -9, last_error=KEY_WAITS), limit_key="account 1"),
        replace(STAFFED, key=KeyAround(2, 1, lower=UUID(int=7))),
        "its turn: job 00000000-0000-0000-0000-000000000007 of its key account 1, which may run beside fewer, is first",
        [Reason.KEY_TURN],
    ),
    (
        job(owed=owed(Phase.OWED, -1), limit_key="account 1"),
        replace(STAFFED, key=KeyAround(1, failed=UUID(int=7), failed_at=NOW)),
        "a person: job 00000000-0000-0000-0000-000000000007 of its key account 1 comes before it, and has failed",
        [Reason.KEY_BLOCKED],
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
        replace(STAFFED, awaited=AwaitedSet(until="ended", members=4, left=0, stopped=0, shown=())),
        "the relay: the jobs of its set have all ended, and it is let go next",
        [Reason.JOBS_AWAITED],
    ),
    (
        job(owed=owed(Phase.OWED, (HELD - NOW).total_seconds())),
        replace(
            STAFFED,
            awaited=AwaitedSet(until="succeeded", members=2, left=1, stopped=1, shown=(STOPPED,), stopped_at=NOW),
        ),
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
        "a consumer that can run it, which is there: another one had its hint"
        " (no handler here for its kind and version); offered again in 2.0 s",
        [Reason.KIND_UNSUPPORTED],
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error=UNKNOWN_KEY, needs_key="2026-11")),
        STAFFED,
        "a consumer that has its key: unknown key 2026-11; offered again in 2.0 s",
        [Reason.KEY_UNKNOWN],
    ),
    (
        job(owed=owed(Phase.OWED, 2, last_error=UNKNOWN_KEY, needs_key="2026-11")),
        replace(STAFFED, keyed=1),
        "a consumer that has its key, which is there: another one had its hint (unknown key 2026-11);"
        " offered again in 2.0 s",
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
]
