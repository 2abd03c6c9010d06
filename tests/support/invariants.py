"""What must always hold, read from a database's own rows. Each rule is a query that returns the jobs that break it."""

from __future__ import annotations

from support.database import Database

_ENDED = "('succeeded', 'failed', 'cancelled')"

# One row per job with attempts: how many, the range of their numbers, and the last one's outcome.
_HISTORY = """
WITH history AS (
  SELECT a.job_id, count(*) AS ended, min(a.number) AS lowest, max(a.number) AS highest,
    count(*) FILTER (WHERE a.outcome = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE a.number > b.budget_start
      AND (a.outcome = 'handed_back' OR (a.outcome = 'retried' AND a.error_class = 'throttled'))) AS uncharged,
    (array_agg(a.outcome ORDER BY a.number DESC))[1] AS last_outcome,
    max(a.ended_at) AS last_ended
  FROM {s}.attempts AS a JOIN {s}.jobs AS b ON b.id = a.job_id GROUP BY a.job_id
)
"""

_RULES = {
    "7: not ended, but nothing is owed to it": f"""
        SELECT j.id FROM {{s}}.jobs AS j LEFT JOIN {{s}}.outbox AS o ON o.job_id = j.id
        WHERE j.state NOT IN {_ENDED} AND o.job_id IS NULL""",
    "7: ended or unknown, but something is owed to it": f"""
        SELECT o.job_id FROM {{s}}.outbox AS o LEFT JOIN {{s}}.jobs AS j ON j.id = o.job_id
        WHERE j.id IS NULL OR j.state IN {_ENDED}""",
    "7: the phase does not fit the state": """
        SELECT j.id FROM {s}.jobs AS j JOIN {s}.outbox AS o ON o.job_id = j.id
        WHERE (j.state = 'running') IS DISTINCT FROM (o.phase = 'leased')""",
    "7: the two rows disagree on queue, tenant, deadline or subject": """
        SELECT j.id FROM {s}.jobs AS j JOIN {s}.outbox AS o ON o.job_id = j.id
        WHERE (j.queue, j.tenant) <> (o.queue, o.tenant) OR j.deadline_at IS DISTINCT FROM o.deadline_at
          OR j.kind || ':' || j.subject IS DISTINCT FROM o.subject""",
    "7: an owed hint is due before its job": """
        SELECT j.id FROM {s}.jobs AS j JOIN {s}.outbox AS o ON o.job_id = j.id
        WHERE o.phase = 'owed' AND o.due_at < j.run_at""",
    "4: the two rows hold different tokens": """
        SELECT j.id FROM {s}.jobs AS j LEFT JOIN {s}.outbox AS o ON o.job_id = j.id
        WHERE j.lease_token IS DISTINCT FROM o.lease_token""",
    "4: a token was given twice": """
        SELECT min(t.job_id::text)::uuid FROM (
          SELECT a.job_id, a.lease_token FROM {s}.attempts AS a
          UNION ALL SELECT o.job_id, o.lease_token FROM {s}.outbox AS o WHERE o.lease_token IS NOT NULL
        ) AS t GROUP BY t.lease_token HAVING count(*) > 1""",
    "4: attempts are not numbered 1 to n, or one is missing": _HISTORY
    + """
        SELECT j.id FROM {s}.jobs AS j LEFT JOIN history AS h ON h.job_id = j.id
        WHERE coalesce(h.ended, 0) <> j.attempt_count - (j.state = 'running')::integer
          OR coalesce(h.highest, 0) <> coalesce(h.ended, 0) OR coalesce(h.lowest, 1) <> 1""",
    "4: an attempt belongs to no job, or ended before it began or started": """
        SELECT a.job_id FROM {s}.attempts AS a LEFT JOIN {s}.jobs AS j ON j.id = a.job_id
        WHERE j.id IS NULL OR a.ended_at < a.claimed_at OR a.started_at NOT BETWEEN a.claimed_at AND a.ended_at""",
    "4: the uncharged count is not that of the handed-back and throttled attempts since the last redrive": _HISTORY
    + """
        SELECT j.id FROM {s}.jobs AS j LEFT JOIN history AS h ON h.job_id = j.id
        WHERE coalesce(h.uncharged, 0) + j.budget_start <> j.uncharged_attempts""",
    "6: succeeded without exactly one successful attempt, its last": _HISTORY
    + """
        SELECT j.id FROM {s}.jobs AS j LEFT JOIN history AS h ON h.job_id = j.id
        WHERE j.state = 'succeeded' AND (h.succeeded, h.last_outcome, h.last_ended)
          IS DISTINCT FROM (1::bigint, 'succeeded'::text, j.finished_at)""",
    "6: succeeded while nobody knows whether an effect of it has happened": """
        SELECT j.id FROM {s}.jobs AS j JOIN {s}.effects AS e ON e.job_id = j.id
        WHERE j.state = 'succeeded' AND e.state IN ('pending', 'uncertain')""",
    "6: a successful attempt of a job that has not succeeded": _HISTORY
    + """
        SELECT j.id FROM {s}.jobs AS j JOIN history AS h ON h.job_id = j.id
        WHERE j.state <> 'succeeded' AND h.succeeded > 0""",
    "1: failed without an error, or with a last attempt that was no failure": _HISTORY
    + """
        SELECT j.id FROM {s}.jobs AS j LEFT JOIN history AS h ON h.job_id = j.id
        WHERE j.state = 'failed' AND (j.last_error_class IS NULL OR j.first_error_class IS NULL
          OR (j.last_error_class <> 'deadline' AND coalesce(h.last_outcome, '') NOT IN ('failed', 'lease_lost')))""",
    "1: failed, and nobody knows why there is no further try": """
        SELECT j.id FROM {s}.jobs AS j WHERE j.state = 'failed' AND j.failed_because IS NULL""",
    "1: ready after an attempt that ends a job": _HISTORY
    + """
        SELECT j.id FROM {s}.jobs AS j JOIN history AS h ON h.job_id = j.id
        WHERE j.state = 'ready' AND h.highest > j.budget_start
          AND h.last_outcome NOT IN ('retried', 'handed_back', 'lease_lost')""",
    "1: more attempts were charged than the job allows": """
        SELECT j.id FROM {s}.jobs AS j
        WHERE j.attempt_count - j.uncharged_attempts - (j.state = 'running')::integer > j.max_attempts""",
    "11: cancelled without who and why, or not audited exactly once, unless a newer job has superseded it": """
        SELECT j.id FROM {s}.jobs AS j
        WHERE j.state = 'cancelled' AND (num_nulls(j.cancel_requested_at, j.cancel_requested_by, j.cancel_reason) > 0
          OR (j.cancelled_after ->> 'superseded_by' IS NULL)::integer <> (
            SELECT count(*) FILTER (WHERE a.action = 'job.cancel')
            - count(*) FILTER (WHERE a.detail ->> 'from' = 'cancelled' AND a.detail ->> 'superseded_by' IS NULL)
            FROM {s}.audit AS a WHERE a.subject = j.id::text))""",
    "11: audited as cancelled, but it is not, and was not redriven": """
        SELECT j.id FROM {s}.jobs AS j JOIN {s}.audit AS a ON a.subject = j.id::text
        WHERE j.state <> 'cancelled' GROUP BY j.id
        HAVING count(*) FILTER (WHERE a.action = 'job.cancel')
          <> count(*) FILTER (WHERE a.detail ->> 'from' = 'cancelled' AND a.detail ->> 'superseded_by' IS NULL)""",
    "12: redriven without an audit row of it": """
        SELECT i.job_id FROM {s}.redrive_items AS i
        WHERE i.redriven_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {s}.audit AS a WHERE a.action = 'job.redrive'
          AND a.subject = i.job_id::text AND a.detail ->> 'operation' = i.operation_id::text)""",
    "12: a budget that no redrive has begun": """
        SELECT j.id FROM {s}.jobs AS j WHERE j.budget_start > 0 AND NOT EXISTS (SELECT 1 FROM {s}.audit AS a
          WHERE a.action = 'job.redrive' AND a.subject = j.id::text
          AND (a.detail ->> 'attempts')::integer = j.budget_start)""",
    "failed without its dead letter, or the other way round": """
        SELECT coalesce(j.id, d.job_id) FROM {s}.jobs AS j FULL JOIN {s}.dead_letters AS d ON d.job_id = j.id
        WHERE coalesce(j.state = 'failed', false) <> (d.job_id IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM {s}.dead_letter_backlog)""",
    "8: an effect of no job, or of an attempt that never was": """
        SELECT e.job_id FROM {s}.effects AS e LEFT JOIN {s}.jobs AS j ON j.id = e.job_id
        WHERE j.id IS NULL OR e.attempt > j.attempt_count""",
    "8: a settled effect that a person resolved without an audit row": """
        SELECT e.job_id FROM {s}.effects AS e WHERE e.settled_by = 'person' AND NOT EXISTS (
          SELECT 1 FROM {s}.audit AS a
          WHERE a.action = 'effect.resolve' AND a.subject = e.job_id::text AND a.detail ->> 'effect' = e.name)""",
    "3: a logical key has two jobs": """
        SELECT min(j.id::text)::uuid FROM {s}.jobs AS j
        GROUP BY j.tenant, j.kind, j.logical_key HAVING count(*) > 1""",
}


# One statement, one snapshot: the rows may be moving.
_ALL = " UNION ALL ".join(f"SELECT '{rule}', broken.* FROM ({query}) AS broken" for rule, query in _RULES.items())


def check_invariants(database: Database) -> list[str]:
    """Return every violation of invariants 1, 3, 4, 6, 7, 8 and 11 as text; empty when all hold.

    Invariants 2 and 5 are about what is not there: a rolled-back submission leaves neither row, and a stale token
    nothing, so either would show as a broken pair, a doubled token or a miscounted attempt.
    """
    return sorted(f"{rule}: job {job_id}" for rule, job_id in database.rows(_ALL))
