-- Alembic's shape of a version table, under a name of our own: a host's `alembic_version` stays the host's.
CREATE TABLE {schema}.outbox_schema_version (
    version_num varchar(32) NOT NULL,
    CONSTRAINT outbox_schema_version_pkc PRIMARY KEY (version_num)
);
