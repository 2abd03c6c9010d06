-- Purpose: have this session write instants and text as our readers need them, and put it back as it was.
-- Transition: none
-- Parameters: date_style, encoding, is_local (for this transaction only; outside of any, for the session)
-- Locks: none. Index: none.
SELECT set_config('DateStyle', CAST(:date_style AS text), CAST(:is_local AS boolean)),
  set_config('client_encoding', CAST(:encoding AS text), CAST(:is_local AS boolean))
