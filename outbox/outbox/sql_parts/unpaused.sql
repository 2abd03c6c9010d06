-- Purpose: whether neither the tenant of a row nor the kind of its job is paused; a job that is gone has no kind that could be. Kinds cost a probe for each row,
--   so they are looked at only while one is paused.
-- Needs: o (tenant and job_id); paused (one row: tenants and kinds, as `paused_names` makes them). Index: primary key of jobs.
-- Parameters: none
o.tenant <> ALL (CAST((SELECT p.tenants FROM paused AS p) AS text[])) AND CASE WHEN (SELECT p.kinds = '{}' FROM paused AS p) THEN true ELSE coalesce(
        (SELECT j.kind FROM {schema}.jobs AS j WHERE j.id = o.job_id) <> ALL (CAST((SELECT p.kinds FROM paused AS p) AS text[])), true) END
