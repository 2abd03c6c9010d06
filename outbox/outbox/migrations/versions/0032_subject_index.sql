-- By it the waiting jobs of a subject are found. It holds only jobs that have one, and no move of a job changes what it holds of it. Alone in its
-- revision: to build it the outbox is read, and nothing else may be held meanwhile.
CREATE INDEX IF NOT EXISTS outbox_subject ON {schema}.outbox (tenant, subject) WHERE subject IS NOT NULL;
