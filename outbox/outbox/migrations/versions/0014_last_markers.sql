-- How far an attempt had come when it failed, lost its lease or was cancelled: the last marker that a heartbeat had stored. NULL with success.
ALTER TABLE {schema}.attempts ADD COLUMN progress text;
