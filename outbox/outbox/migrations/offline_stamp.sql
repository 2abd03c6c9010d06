INSERT INTO {schema}.outbox_schema_version (version_num) VALUES ('{revision}');
