-- The key without which a sealed job can't be opened, once a worker without it has met the job: from then on only those who have it claim it.
-- Workers of the releases before don't look at it, and don't open anything: let them end before anybody seals.
ALTER TABLE {schema}.outbox ADD COLUMN needs_key text;
