-- Purpose: the pauses in force that hold a row, of whatever scope, for somebody who reads the whole table once.
-- Needs: o (the outbox row); it is the query within an EXISTS. Index: primary key of jobs for each row while a kind is paused.
-- Parameters: none
SELECT 1 FROM {schema}.pauses AS p WHERE p.resumed_at IS NULL AND p.name = CASE p.scope WHEN 'queue' THEN o.queue WHEN 'tenant' THEN o.tenant
        WHEN 'kind' THEN (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) ELSE '' END
