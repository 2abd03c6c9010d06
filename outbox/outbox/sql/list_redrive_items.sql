-- Purpose: list jobs of a redrive, those that a person may want to look at first: refused, failed, then by id. What a redrive that is over has
--   not touched waits for nothing: it is untouched.
-- Transition: none
-- Parameters: operation_id, batch
-- Locks: none. Index: redrive_items_pkey (prefix), redrive_operations_pkey.
SELECT i.job_id, i.kind, i.tenant, CASE WHEN i.state = 'waiting' AND r.ended_at IS NOT NULL THEN 'untouched' ELSE i.state END AS state, i.refusal, i.code, i.outcome_code, i.attempt_count, i.canary, i.redriven_at, i.old_payload IS NOT NULL AS patched
FROM {schema}.redrive_items AS i JOIN {schema}.redrive_operations AS r ON r.id = i.operation_id
WHERE i.operation_id = CAST(:operation_id AS uuid)
ORDER BY i.state = 'refused' DESC, i.state = 'failed' DESC, i.job_id LIMIT CAST(:batch AS integer)
