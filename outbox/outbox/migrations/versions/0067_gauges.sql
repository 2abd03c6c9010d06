-- Who shows what is in the tables, for all: one process at a time. Older releases look at the row of the figures alone.
ALTER TABLE {schema}.queue_count ADD COLUMN holder text;
INSERT INTO {schema}.queue_count (name, next_at) VALUES ('gauges', '1970-01-01Z');
