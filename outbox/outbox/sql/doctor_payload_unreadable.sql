-- Purpose: find waiting jobs whose payload PostgreSQL holds and Python can not read: a number of too many digits, lists too deep.
-- Transition: none
-- Parameters: low and below (the range of ids), batch
-- Locks: none. Index: primary keys, a range of one.
SELECT j.id::text AS subject, 'its payload of ' || length(p.text) || ' characters holds a number of too many digits, or lists too deep' AS detail
FROM {schema}.outbox AS o JOIN {schema}.jobs AS j ON j.id = o.job_id, LATERAL (SELECT j.payload::text AS text OFFSET 0) AS p
WHERE o.job_id >= CAST(:low AS uuid) AND o.job_id < CAST(:below AS uuid) AND length(p.text) > 500
  AND (translate(p.text, '123456789', '000000000') LIKE '%' || repeat('0', 4301) || '%' OR p.text LIKE '%' || repeat('[', 500) || '%')
ORDER BY o.job_id DESC LIMIT CAST(:batch AS integer)
