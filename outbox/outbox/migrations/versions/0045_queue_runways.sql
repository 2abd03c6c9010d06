-- The most hints of a queue that a relay lets be out and unclaimed; NULL: what the relay's setting says. It makes no queue governed. No row is rewritten,
-- and the table holds a few.
ALTER TABLE {schema}.queue_limits
  ADD COLUMN runway integer,
  ADD CONSTRAINT queue_limits_runway CHECK (coalesce(runway BETWEEN 1 AND 1000000, true));
