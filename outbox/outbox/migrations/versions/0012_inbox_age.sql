-- What nobody has to honour any more is deleted oldest first, however many keys there are.
CREATE INDEX inbox_age ON {schema}.inbox (created_at);
