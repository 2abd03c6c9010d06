-- The leases of each queue, in the order in which they are looked at. One index for both: what has come due is looked for queue by queue, and what runs in a
-- queue that has limits is counted. It takes the place of outbox_leased and outbox_running, which 0041 drops, so that each claim writes one entry instead of
-- two. Alone in its revision: to build it the outbox is read. No heartbeat changes it.
CREATE INDEX IF NOT EXISTS outbox_leases ON {schema}.outbox (queue, due_at) WHERE phase = 'leased';
