-- kind, a colon and the subject of a job that has one: a kind holds no colon, so two of them never meet. A column without a default rewrites no row.
ALTER TABLE {schema}.outbox ADD COLUMN subject text;
-- By it the waiting jobs of a subject are found. It holds only jobs that have one, and no move of a job changes what it holds of it.
CREATE INDEX outbox_subject ON {schema}.outbox (tenant, subject) WHERE subject IS NOT NULL;
