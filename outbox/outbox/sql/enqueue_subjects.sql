-- Purpose: write jobs of which some say what they are about, as enqueue.sql does; and, if asked, hold the waiting jobs of the same subjects, which
--   supersede.sql then ends. The answer is that of enqueue.sql, or U+001C and JSON: see {schema}.enqueue_subjects_1.
-- Transition: none (a new job starts ready)
-- Parameters: jobs, bounded (as in enqueue.sql); subjects (text: one for each job, an empty one for none), supersedes, most (waiting jobs of a subject,
--   beyond which nothing is written)
-- Locks: as enqueue.sql; then, if asked, the turn of each subject, waiting for a transaction that supersedes jobs of the same one and has not yet
--   ended; then the waiting jobs' outbox rows in id order, waiting for a release, a claim or a cancel to commit. Each in one order for all callers.
-- Index: as enqueue.sql; primary keys; outbox_subject.
SELECT {schema}.enqueue_subjects_1(:jobs, :bounded, :subjects, CAST(:supersedes AS boolean), CAST(:most AS integer))
