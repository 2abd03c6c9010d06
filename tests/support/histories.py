"""A job with a very long history: written as it stands after months, for what reads it."""

from __future__ import annotations

from uuid import UUID

from support.database import Database
from support.jobs import submit

EFFECTS = 20_000
ATTEMPTS = 5_000
_EFFECTS = """
INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, settled_by, created_at, confirmed_at)
SELECT %s, 'e' || lpad(n::text, 9, '0'), CASE WHEN n %% 10000 = 7 THEN 'uncertain' ELSE 'confirmed' END, '', 1,
  CASE WHEN n %% 10000 <> 7 THEN 'send' END, now() - n * interval '1 ms', CASE WHEN n %% 10000 <> 7 THEN now() END
FROM generate_series(1, %s) AS n
"""
_ATTEMPTS = """
INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, claimed_at,
  ended_at, outcome)
SELECT %s, n, gen_random_uuid(), 'w', 'h', '1', '1', now(), now(), 'retried' FROM generate_series(1, %s) AS n
"""
_NOTES = """
INSERT INTO {s}.audit (at, actor, action, subject, reason, detail)
SELECT now(), 'attempt ' || n, 'effect.late', %s, 'late', jsonb_build_object() FROM generate_series(1, %s) AS n
"""


def long_lived(database: Database) -> UUID:
    """Return a waiting job with `ATTEMPTS` attempts and `EFFECTS` effects, among others that have some.

    Of its effects `e000000007` and `e000010007` are uncertain.
    """
    ids = submit(database, 50)
    for one in ids[1:]:
        database.rows(_EFFECTS, one, 20)
        database.rows(_ATTEMPTS, one, 2)
    database.rows(_EFFECTS, ids[0], EFFECTS)
    database.rows(_ATTEMPTS, ids[0], ATTEMPTS)
    return ids[0]


def note_late(database: Database, job_id: UUID, count: int) -> None:
    """Put on record that so many workers learnt too late what became of an effect of this job."""
    database.rows(_NOTES, str(job_id), count)
