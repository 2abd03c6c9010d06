-- Purpose: record an operator's act that is more than the change of one job.
-- Transition: none
-- Parameters: actor, action, subject, reason, detail (JSON text)
-- Locks: none. Index: audit_pkey, audit_subject.
INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
VALUES ({schema}.clock(), CAST(:actor AS text), CAST(:action AS text), CAST(:subject AS text), CAST(:reason AS text),
  CAST(CAST(:detail AS text) AS jsonb))
