"""A relay that is hit while it purges old jobs, beside young ones that flow."""

from __future__ import annotations

import signal

from crash.processes import Armed
from crash.stage import CellFailed, Stage

_OLD = 20
_JOBS = 12
_RETENTION = {
    "OUTBOX_RETENTION_SUCCEEDED": "1d",
    "OUTBOX_RETENTION_BATCH": "4",
    "OUTBOX_RETENTION_PAUSE_S": "1",
}
_JOB_ROWS = """
INSERT INTO {s}.jobs (id, tenant, kind, logical_key, version, queue, payload, payload_digest, state, attempt_count,
  run_at, created_at, finished_at)
SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid), 'default', 'crash.old', n::text, 1, 'crash', '[]', '', 'succeeded', 1,
  t.ended, t.ended, t.ended
FROM generate_series(1, %s) AS n, (SELECT {s}.clock() - interval '40 days' AS ended) AS t
"""
_HISTORY_ROWS = """
INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, claimed_at,
  ended_at, outcome)
SELECT j.id, 1, gen_random_uuid(), 'w', 'h', '1', '1', j.finished_at, j.finished_at, 'succeeded'
FROM {s}.jobs AS j WHERE j.kind = 'crash.old'
"""
_HALF_GONE = """
SELECT 1 FROM {s}.jobs AS j LEFT JOIN {s}.attempts AS a ON a.job_id = j.id
WHERE a.job_id IS NULL AND j.kind = 'crash.old'
UNION ALL SELECT 1 FROM {s}.attempts AS a LEFT JOIN {s}.jobs AS j ON j.id = a.job_id WHERE j.id IS NULL
"""


def purge_at(stage: Stage, armed: Armed) -> None:
    """Hit a relay before or after the commit of a stretch; another one goes on with the walk. Jobs leave as a whole,
    and nobody's young job waits for that.
    """
    stage.database.rows(_JOB_ROWS, _OLD)
    stage.database.rows(_HISTORY_ROWS)
    stage.consumer()
    victim = stage.relay(armed, **_RETENTION)
    stage.held(victim)
    stage.relay(**_RETENTION)
    stage.submit(_JOBS)
    stage.drained()
    if stage.database.count(_HALF_GONE):
        raise CellFailed("a job and its history have parted")
    if armed.action == "stop":
        victim.signal(signal.SIGCONT)
    old = "jobs WHERE kind = 'crash.old'"
    stage.until(lambda: stage.database.count(old) == 0, "all that is old is purged")
    if stage.database.count("attempts") < _JOBS or stage.database.count(_HALF_GONE):
        raise CellFailed("history has gone without its jobs, or jobs without their history")
    stage.facts["purged"] = _OLD
