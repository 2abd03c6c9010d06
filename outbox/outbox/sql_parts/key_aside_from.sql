-- Purpose: where the places begin of what is set aside for its concurrency key; what has a time of its own stands before.
-- Needs: nothing
-- Parameters: none
timestamptz '6900-01-01Z'
