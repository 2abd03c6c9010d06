-- What outbox_leases does since 0040. In a revision of its own: whoever holds a lock to build an index must not ask for a stronger one.
-- Processes of the releases before find the same leases by the new index, more slowly.
DROP INDEX {schema}.outbox_leased, {schema}.outbox_running;
