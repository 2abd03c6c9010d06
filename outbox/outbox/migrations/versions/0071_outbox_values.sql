-- What no row of the hot list may hold. Every loop reads its rows many at a time: an instant that no driver can read back, one that no arithmetic can bear, a
-- counter at its end or a name that AMQP can't carry would stop all of them, in all queues, though it stands in one row. Nothing of ours writes such
-- a value; a hand may. The range is wider than that of jobs by what a priority moves a place in line.

-- A row of before is brought to the nearest that is allowed. Where that is nonsense, too, the doctor mends it from its job, as it did before.
UPDATE {schema}.outbox AS o
SET due_at = least(greatest(o.due_at, '1960-01-01Z'), '9999-12-01Z'), order_key = least(greatest(o.order_key, '1960-01-01Z'), '9999-12-01Z'),
  deadline_at = CASE WHEN o.deadline_at IS NOT NULL THEN least(greatest(o.deadline_at, '1960-01-01Z'), '9999-12-01Z') END,
  released_at = CASE WHEN o.released_at IS NOT NULL THEN least(greatest(o.released_at, '1960-01-01Z'), '9999-12-01Z') END,
  lease_expires_at = CASE WHEN o.lease_expires_at IS NOT NULL THEN least(greatest(o.lease_expires_at, '1960-01-01Z'), '9999-12-01Z') END,
  limit_next_at = CASE WHEN o.limit_next_at IS NOT NULL THEN least(greatest(o.limit_next_at, '1960-01-01Z'), '9999-12-01Z') END,
  release_count = least(greatest(o.release_count, 0), 1000000000), queue = left(o.queue, 25), tenant = left(o.tenant, 50)
WHERE NOT (
  least(o.due_at, o.order_key, o.deadline_at, o.released_at, o.lease_expires_at, o.limit_next_at) >= '1960-01-01Z'
  AND greatest(o.due_at, o.order_key, o.deadline_at, o.released_at, o.lease_expires_at, o.limit_next_at) <= '9999-12-01Z'
  AND octet_length(o.queue) <= 100 AND octet_length(o.tenant) <= 200 AND o.release_count BETWEEN 0 AND 1000000000);

-- All instants by one comparison each way: the server reads these expressions anew for every statement, and a single submission pays for each of their words.
-- An instant that isn't there is passed over by least() and greatest().
ALTER TABLE {schema}.outbox
  ADD CONSTRAINT outbox_instants CHECK (
    least(due_at, order_key, deadline_at, released_at, lease_expires_at, limit_next_at) >= '1960-01-01Z'
    AND greatest(due_at, order_key, deadline_at, released_at, lease_expires_at, limit_next_at) <= '9999-12-01Z'),
  ADD CONSTRAINT outbox_names CHECK (octet_length(queue) <= 100 AND octet_length(tenant) <= 200),
  ADD CONSTRAINT outbox_counts CHECK (release_count BETWEEN 0 AND 1000000000);
