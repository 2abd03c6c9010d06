-- Purpose: when a hint that goes out now, and that nobody claims, counts as lost: later with each release, doubling from the first wait up to the longest.
-- Needs: o (the outbox row before this release), n (instant)
-- Parameters: rehint_after_s and rehint_max_s
n.instant + make_interval(secs => least(CAST(:rehint_after_s AS float8) * power(2, least(o.release_count, 20)),
    greatest(CAST(:rehint_max_s AS float8), CAST(:rehint_after_s AS float8))))
