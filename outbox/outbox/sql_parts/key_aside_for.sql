-- Purpose: how much later a job stands while it is set aside for its concurrency key, some six thousand years: behind all that has a time, and the way back
--   is known. In hours, which are as long in every time zone. The schema's functions have the same.
-- Needs: nothing
-- Parameters: none
interval '52594920 hours'
