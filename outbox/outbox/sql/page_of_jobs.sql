-- Purpose: tell where a page of the walk through jobs ends, from the newest id backwards; no row where the rest fits on it.
-- Transition: none
-- Parameters: below (where it begins, or NULL), page (rows)
-- Locks: none. Index: primary key, backwards.
SELECT t.id AS low FROM {schema}.jobs AS t WHERE t.id < coalesce(CAST(:below AS uuid), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
ORDER BY t.id DESC OFFSET CAST(:page AS integer) - 1 LIMIT 1
