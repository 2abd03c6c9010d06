-- What a running attempt says of its progress. It arrives with a heartbeat, so it stands where heartbeats write; no index holds it, so they
-- stay heap-only. Workers of the releases before neither read nor write it.
ALTER TABLE {schema}.outbox ADD COLUMN progress text;
