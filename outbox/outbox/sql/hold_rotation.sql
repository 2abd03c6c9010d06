-- Purpose: read how far a rotation has come, and keep it there until this transaction ends: one step at a time.
-- Transition: none
-- Parameters: rotation_id
-- Locks: the rotation's row, waiting. Index: key_rotations_pkey.
SELECT r.id, r.state, r.place, r.busy, r.walked, r.rotated, r.unopened FROM {schema}.key_rotations AS r
WHERE r.id = CAST(:rotation_id AS bigint) FOR UPDATE
