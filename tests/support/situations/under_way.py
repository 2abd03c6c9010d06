"""Jobs that are due, hinted, running or over."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from outbox.explaining.reasons import NO_HANDLER
from outbox.explaining.surroundings import AHEAD_LIMIT, Surroundings
from outbox_schemas import JobState, Phase, Reason
from outbox_schemas.views import CancelledAfter
from support.situations.builders import (
    ALONE,
    FOREIGN,
    NOBODY,
    NONE_ABLE,
    NOW,
    READY,
    RUNNING,
    STAFFED,
    Situation,
    error,
    job,
    owed,
)

UNDER_WAY: list[Situation] = [
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
        STAFFED,
        "a person: its effect was on hold and is settled by now; a redrive goes on from there",
        [Reason.FAILED],
    ),
    (
        job(JobState.FAILED, last_error=error("Timeout")),
        Surroundings(NOW, open_effects=("charge",)),
        "a person: it has failed (Timeout) and is not tried again by itself; "
        "nobody knows whether its effect has happened (charge)",
        [Reason.FAILED],
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
