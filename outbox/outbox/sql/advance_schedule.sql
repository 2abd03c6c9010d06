-- Purpose: note what a schedule's turn has done, in the transaction that has made the jobs. What is left of a long catching up comes behind all that is due by now:
--   each of these turns would else come before whatever is in time. Where what comes next may become another, it is looked at anew before it comes.
-- Transition: none
-- Parameters: name, after_at, next_at (NULL: there is none any more), anew_s (NULL: it stays so), last_at (NULL: none was made), made, passed_over, error
--   (NULL: all went well; why it counts as broken, though what was due has been passed over)
-- Locks: the schedule's row, which the turn holds. Index: schedules_pkey.
UPDATE {schema}.schedules AS s
SET after_at = CAST(:after_at AS timestamptz), next_at = CAST(:next_at AS timestamptz),
  wake_at = CASE WHEN CAST(:next_at AS timestamptz) IS NULL THEN 'infinity'
    ELSE greatest(least(CAST(:next_at AS timestamptz), c.now + make_interval(secs => CAST(:anew_s AS float8))), c.now) END,
  last_at = coalesce(CAST(:last_at AS timestamptz), s.last_at),
  made = s.made + CAST(:made AS bigint), passed_over = s.passed_over + CAST(:passed_over AS bigint),
  last_error = CAST(:error AS text), broken_at = CASE WHEN CAST(:error AS text) IS NOT NULL THEN coalesce(s.broken_at, c.now) END, failed_turns = 0
FROM (SELECT {schema}.clock() AS now) AS c
WHERE s.name = CAST(:name AS text)
