-- Which keys each consumer has, by their ids, as it tells with its signs of life: so that people hear of a key that nobody has. NULL: a consumer of a release
-- before this one, or a relay, says nothing of keys. No row is rewritten.
ALTER TABLE {schema}.processes ADD COLUMN key_ids text[];
