-- How the dead letters are found that hold up a concurrency key. Alone in its revision: to build it the letters are read.
CREATE INDEX IF NOT EXISTS dead_letters_limit_key ON {schema}.dead_letters (limit_key, limit_group, tenant, limit_place)
  WHERE limit_key IS NOT NULL AND discarded_at IS NULL;
