-- Purpose: list jobs of a redrive, those that a person may want to look at first: refused, failed, then by id.
-- Transition: none
-- Parameters: operation_id, batch
-- Locks: none. Index: redrive_items_pkey (prefix).
SELECT i.job_id, i.kind, i.tenant, i.state, i.refusal, i.code, i.outcome_code, i.attempt_count, i.canary, i.redriven_at, i.old_payload IS NOT NULL AS patched
FROM {schema}.redrive_items AS i WHERE i.operation_id = CAST(:operation_id AS uuid)
ORDER BY i.state = 'refused' DESC, i.state = 'failed' DESC, i.job_id LIMIT CAST(:batch AS integer)
