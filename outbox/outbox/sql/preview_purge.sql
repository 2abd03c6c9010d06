-- Purpose: count what purge.sql and erase_payloads.sql would do with one stretch of the table, and change nothing.
-- Transition: none
-- Parameters: place (the id that the stretch begins after), newest_s, batch; kinds, states, keeps_s, payload_keeps_s (the rules; NULL seconds: for ever)
-- Locks: none. Index: primary keys, join_members_job, redrive_items_job.
WITH rules AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:kinds AS text[]), CAST(:states AS text[]), CAST(:keeps_s AS float8[]), CAST(:payload_keeps_s AS float8[]))
    AS r(kind, state, keep_s, payload_keep_s)
), stretch AS MATERIALIZED (
  SELECT j.id, j.kind, j.state, j.attempt_count, j.finished_at, j.payload_erased_at FROM {schema}.jobs AS j
  WHERE j.id > CAST(:place AS uuid) AND j.id < (
    SELECT CAST(lpad(to_hex(floor(extract(epoch FROM {schema}.clock() - make_interval(secs => CAST(:newest_s AS float8))) * 1000)::bigint), 12, '0')
      || '00000000000000000000' AS uuid))
  ORDER BY j.id LIMIT CAST(:batch AS integer)
), judged AS (
  SELECT s.id, s.state, coalesce(s.finished_at <= n.now - make_interval(secs => k.keep_s), false) AND f.is_free AS goes,
    s.payload_erased_at IS NULL AND f.is_free AND coalesce(s.finished_at <= n.now - make_interval(secs => k.payload_keep_s), false) AS is_erased
  FROM stretch AS s CROSS JOIN (SELECT {schema}.clock() AS now) AS n CROSS JOIN LATERAL (SELECT
    {may_leave} AS is_free) AS f LEFT JOIN LATERAL (
    SELECT r.keep_s, r.payload_keep_s FROM rules AS r WHERE r.state = s.state AND r.kind IN (s.kind, '*') ORDER BY r.kind = '*' LIMIT 1) AS k ON true
)
SELECT count(*) AS looked_at, (SELECT s.id FROM stretch AS s ORDER BY s.id DESC LIMIT 1) AS last_id,
  count(*) FILTER (WHERE j.goes AND j.state = 'succeeded') AS succeeded, count(*) FILTER (WHERE j.goes AND j.state = 'failed') AS failed,
  count(*) FILTER (WHERE j.goes AND j.state = 'cancelled') AS cancelled, count(*) FILTER (WHERE j.is_erased AND NOT j.goes) AS erased
FROM judged AS j
