-- Purpose: take the next place among all jobs that run in the order of their submission.
-- Transition: none
-- Parameters: none
-- Locks: none. Index: none: it is a sequence, and what is rolled back leaves a gap.
SELECT {schema}.next_limit_place() AS place
