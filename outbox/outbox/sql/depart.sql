-- Purpose: tell that this process has ended in order.
-- Transition: none
-- Parameters: name
-- Locks: its own row. Index: primary key.
DELETE FROM {schema}.processes AS p WHERE p.name = CAST(:name AS text)
