"""A relay that is hit while it purges old jobs, beside young ones that flow."""

from __future__ import annotations

import json
import signal
from functools import partial

from crash.processes import Armed
from crash.stage import CellFailed, Stage

_OLD = 20
_JOBS = 12
# Half of the old ones: a relay erases their payloads and keeps the rest.
_AGED = "crash.aged"
_RETENTION = {
    "OUTBOX_RETENTION_SUCCEEDED": "1d",
    "OUTBOX_RETENTION_KINDS": json.dumps({_AGED: {"succeeded": "never", "succeeded_payload": "1d"}}),
    "OUTBOX_RETENTION_BATCH": "4",
    "OUTBOX_RETENTION_PAUSE_S": "1",
}
_JOB_ROWS = """
INSERT INTO {s}.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, attempt_count,
  run_at, created_at, finished_at)
SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid), 'default', CASE n %% 2 WHEN 0 THEN 'crash.aged' ELSE 'crash.old' END,
  n::text, 1, 'crash', '[]', '', 'succeeded', 1, t.ended, t.ended, t.ended
FROM generate_series(1, %s) AS n, (SELECT {s}.clock() - interval '40 days' AS ended) AS t
"""
_HISTORY_ROWS = """
INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, claimed_at,
  ended_at, outcome)
SELECT j.id, 1, gen_random_uuid(), 'w', 'h', '1', '1', j.finished_at, j.finished_at, 'succeeded'
FROM {s}.jobs AS j WHERE j.kind IN ('crash.old', 'crash.aged')
"""
_HALF_GONE = """
SELECT 1 FROM {s}.jobs AS j LEFT JOIN {s}.attempts AS a ON a.job_id = j.id
WHERE a.job_id IS NULL AND j.kind IN ('crash.old', 'crash.aged')
UNION ALL SELECT 1 FROM {s}.attempts AS a LEFT JOIN {s}.jobs AS j ON j.id = a.job_id WHERE j.id IS NULL
"""


def purge_at(stage: Stage, armed: Armed, *, by_hand: bool = False) -> None:
    """Hit a relay, or a purge by hand, before or after the commit of a stretch; another one goes on with the walk. Jobs
    leave as a whole, and nobody's young job waits for that.
    """
    purger = partial(stage.purger, OUTBOX_RETENTION_BATCH=_RETENTION["OUTBOX_RETENTION_BATCH"])
    stage.database.rows(_JOB_ROWS, _OLD)
    stage.database.rows(_HISTORY_ROWS)
    stage.consumer()
    victim = purger(armed) if by_hand else stage.relay(armed, **_RETENTION)
    stage.held(victim)
    again = purger() if by_hand else stage.relay(**_RETENTION)
    if by_hand:
        stage.relay()
    stage.submit(_JOBS)
    stage.drained()
    if stage.database.count(_HALF_GONE):
        raise CellFailed("a job and its history have parted")
    if armed.action == "stop":
        victim.signal(signal.SIGCONT)
    old = "jobs WHERE kind = 'crash.old'"
    stage.until(lambda: stage.database.count(old) == 0, "all that is old is purged")
    if by_hand:
        ended = [again] if armed.action == "kill" else [victim, again]
        stage.until(lambda: all(process.code is not None for process in ended), "the purges by hand ended")
    _see_erased(stage, 0 if by_hand else _OLD // 2)
    if stage.database.count("attempts") < _JOBS or stage.database.count(_HALF_GONE):
        raise CellFailed("history has gone without its jobs, or jobs without their history")
    stage.facts["purged"] = _OLD // 2


def _see_erased(stage: Stage, expected: int) -> None:
    erased = f"jobs WHERE kind = '{_AGED}' AND payload_erased_at IS NOT NULL AND payload = 'null'"
    stage.until(lambda: stage.database.count(erased) == expected, "the payloads that are to go are erased")
    if stage.database.count(f"jobs WHERE kind = '{_AGED}'") != _OLD // 2:
        raise CellFailed("jobs that are to stay have gone")
    # Nobody ordered them: they were made old.
    gone = f"DELETE FROM {{s}}.jobs WHERE kind = '{_AGED}' RETURNING id"
    stage.database.rows(f"WITH gone AS ({gone}) DELETE FROM {{s}}.attempts AS a USING gone AS g WHERE a.job_id = g.id")
