-- How long a relay's runways are, by queue, as it tells with its signs of life: {"mail": {"hints": 64, "most": 2000, "set": false}}. For people. A constant
-- default rewrites no row.
ALTER TABLE {schema}.processes ADD COLUMN runways jsonb NOT NULL DEFAULT '{}';
