-- Purpose: keep how far a rotation has come; at its end, audit what it has done.
-- Transition: none
-- Parameters: rotation_id, place, busy, walked, rotated, unopened (each as it is now), state (running | done)
-- Locks: the rotation's row, held by hold_rotation. Index: key_rotations_pkey.
WITH noted AS (
  UPDATE {schema}.key_rotations AS r
  SET place = CAST(:place AS uuid), busy = CAST(:busy AS uuid[]), walked = CAST(:walked AS bigint), rotated = CAST(:rotated AS bigint),
    unopened = CAST(:unopened AS bigint), state = CAST(:state AS text), updated_at = n.now
  FROM (SELECT {schema}.clock() AS now) AS n
  WHERE r.id = CAST(:rotation_id AS bigint)
  RETURNING r.*
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT o.updated_at, o.actor, 'keys.rotated', 'rotation ' || o.id, o.reason,
    jsonb_build_object('walked', o.walked, 'rotated', o.rotated, 'unopened', o.unopened)
  FROM noted AS o WHERE o.state = 'done'
)
SELECT o.id FROM noted AS o
