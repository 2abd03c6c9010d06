DO $stamp$
BEGIN
    UPDATE {schema}.outbox_schema_version SET version_num = '{revision}' WHERE version_num = '{since}';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the outbox schema is not at revision {since}, which this script starts from';
    END IF;
END
$stamp$;
