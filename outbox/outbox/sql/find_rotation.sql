-- Purpose: find the rotation to the same primaries, under the same keys, that has not come to its end.
-- Transition: none
-- Parameters: key_ids (sorted, with a mark on the primaries)
-- Locks: none. Index: none, as in begin_rotation.
SELECT r.id, r.state, r.place, r.busy, r.walked, r.rotated, r.unopened FROM {schema}.key_rotations AS r
WHERE r.state = 'running' AND r.key_ids = CAST(:key_ids AS text[]) ORDER BY r.id DESC LIMIT 1
