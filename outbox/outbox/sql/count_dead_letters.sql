-- Purpose: count the open dead letters that fit a filter, in groups. Each filter is off where its parameter is NULL; a column that is not
--   grouped by is NULL in the answer.
-- Transition: none
-- Parameters: kind, code, queue, tenant, older_than_s, by_code, by_kind, by_queue, by_tenant, batch
-- Locks: none. Index: dead_letters_cause alone for code and kind (the parameters are constants to the planner); else the table is read once.
SELECT CASE WHEN CAST(:by_code AS boolean) THEN d.code END AS code, CASE WHEN CAST(:by_kind AS boolean) THEN d.kind END AS kind,
  CASE WHEN CAST(:by_queue AS boolean) THEN d.queue END AS queue, CASE WHEN CAST(:by_tenant AS boolean) THEN d.tenant END AS tenant,
  count(*) AS letters, min(d.failed_at) AS oldest_at, max(d.failed_at) AS newest_at
FROM {schema}.dead_letters AS d
WHERE d.discarded_at IS NULL
  AND (CAST(:kind AS text) IS NULL OR d.kind = CAST(:kind AS text))
  AND (CAST(:code AS text) IS NULL OR d.code = CAST(:code AS text))
  AND (CAST(:queue AS text) IS NULL OR d.queue = CAST(:queue AS text))
  AND (CAST(:tenant AS text) IS NULL OR d.tenant = CAST(:tenant AS text))
  AND (CAST(:older_than_s AS float8) IS NULL
    OR d.failed_at <= (SELECT {schema}.clock()) - make_interval(secs => CAST(:older_than_s AS float8)))
GROUP BY 1, 2, 3, 4
ORDER BY letters DESC, 1, 2, 3, 4 LIMIT CAST(:batch AS integer)
