-- The process id of the server's own process whose session released a hint last. Once that has ended, and the hint is neither claimed nor waits at the broker,
-- it is owed again soon. NULL: released by a release before this one, whose hints are found as before. No index, no row is rewritten.
ALTER TABLE {schema}.outbox ADD COLUMN released_by integer;
