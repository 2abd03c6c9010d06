-- Purpose: tell if work waits for long that a relay would move, and no relay was seen lately. What is paused is meant to wait.
-- Transition: none
-- Parameters: grace_s, live_s (how long ago a relay's last sign may be), batch
-- Locks: none. Index: none: the outbox is read until something is found. The processes are read whole.
SELECT 'relay' AS subject, 'work waits since before ' || n.ago || ', and no relay was seen lately' AS detail
FROM (SELECT {schema}.clock() AS now, {schema}.clock() - make_interval(secs => CAST(:grace_s AS float8)) AS ago) AS n
WHERE NOT EXISTS (
    SELECT 1 FROM {schema}.processes AS s
    WHERE s.role = 'relay' AND s.seen_at > n.now - make_interval(secs => CAST(:live_s AS float8)))
  AND EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.due_at <= n.ago AND (o.phase <> 'leased' OR o.lease_expires_at <= n.ago)
    AND (o.phase = 'leased' OR NOT EXISTS (
      {pause_of_row})))
LIMIT CAST(:batch AS integer)
