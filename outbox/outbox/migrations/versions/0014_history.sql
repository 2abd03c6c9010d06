-- More of each attempt's history, which from now on stays as it was written. Nullable columns: no row is rewritten.

-- reached: how far the attempt came (claimed, started, applying); NULL where its worker could not tell, and with success, which came to the end.
-- progress: how far it had come when it failed, lost its lease or was cancelled: the last marker that a heartbeat had stored. NULL with success.
ALTER TABLE {schema}.attempts
  ADD COLUMN started_at timestamptz,
  ADD COLUMN reached text,
  ADD COLUMN failed_because text,
  ADD COLUMN progress text;

CREATE TRIGGER attempts_kept BEFORE UPDATE ON {schema}.attempts FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER attempts_parting AFTER DELETE ON {schema}.attempts FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_parting();
