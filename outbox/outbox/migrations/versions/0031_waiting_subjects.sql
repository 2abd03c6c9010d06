-- kind, a colon and the subject of a job that has one: a kind holds no colon, so two of them never meet. A column without a default rewrites no row.
ALTER TABLE {schema}.outbox ADD COLUMN subject text;
