-- Purpose: note what a schedule's turn has done, in the transaction that has made the jobs.
-- Transition: none
-- Parameters: name, after_at, next_at (NULL: there is none any more), last_at (NULL: none was made), made, passed_over
-- Locks: the schedule's row, which the turn holds. Index: schedules_pkey.
UPDATE {schema}.schedules AS s
SET after_at = CAST(:after_at AS timestamptz), next_at = CAST(:next_at AS timestamptz),
  wake_at = coalesce(CAST(:next_at AS timestamptz), 'infinity'), last_at = coalesce(CAST(:last_at AS timestamptz), s.last_at),
  made = s.made + CAST(:made AS bigint), passed_over = s.passed_over + CAST(:passed_over AS bigint),
  last_error = NULL, broken_at = NULL, failed_turns = 0
WHERE s.name = CAST(:name AS text)
