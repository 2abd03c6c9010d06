-- Purpose: begin a rotation of keys, with who and why; one under other keys that has not come to its end is given up for it.
-- Transition: none
-- Parameters: key_ids (all that the caller has, sorted, with a mark on the primaries), actor, reason
-- Locks: rows of unfinished rotations. Index: none: a rotation is a rare thing, and so are its rows.
WITH given_up AS (
  UPDATE {schema}.key_rotations AS r SET updated_at = {schema}.clock(), state = 'given_up' WHERE r.state = 'running' RETURNING r.id
), begun AS (
  INSERT INTO {schema}.key_rotations (actor, reason, key_ids, started_at, updated_at)
  VALUES (CAST(:actor AS text), CAST(:reason AS text), CAST(:key_ids AS text[]), {schema}.clock(), {schema}.clock())
  RETURNING *
), audited AS (
  INSERT INTO {schema}.audit (at, actor, action, subject, reason, detail)
  SELECT b.started_at, b.actor, 'keys.rotate', 'rotation ' || b.id, b.reason,
    jsonb_build_object('key_ids', ARRAY(SELECT split_part(k.id, ' ', 1) FROM unnest(b.key_ids) WITH ORDINALITY AS k(id, n) ORDER BY k.n),
      'primaries', ARRAY(SELECT split_part(k.id, ' ', 1) FROM unnest(b.key_ids) WITH ORDINALITY AS k(id, n) WHERE k.id LIKE '% %' ORDER BY k.n),
      'given_up', ARRAY(SELECT g.id FROM given_up AS g))
  FROM begun AS b
)
SELECT b.id, b.state, b.place, b.busy, b.walked, b.rotated, b.unopened FROM begun AS b
