-- How long hints wait before they go out, and then until their jobs are claimed, on average, in seconds. Counted with the rest; processes of the releases
-- before leave both as they are, and delete them with their row.
ALTER TABLE {schema}.queue_figures ADD COLUMN release_mean_s float8, ADD COLUMN claim_mean_s float8;
