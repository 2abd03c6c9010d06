-- How far a rotation of keys has come. All jobs up to place have been seen to, but for those in busy, whose rows somebody held.
CREATE TABLE {schema}.key_rotations (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  actor      text NOT NULL,
  reason     text NOT NULL,
  key_ids    text[] NOT NULL,
  state      text NOT NULL DEFAULT 'running',
  place      uuid,
  busy       uuid[] NOT NULL DEFAULT '{}',
  walked     bigint NOT NULL DEFAULT 0,
  rotated    bigint NOT NULL DEFAULT 0,
  unopened   bigint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  CONSTRAINT key_rotations_state CHECK (state IN ('running', 'done', 'given_up'))
);
