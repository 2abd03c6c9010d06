"""What relays see to at leisure."""

from __future__ import annotations

import pytest

from outbox_relay.counters import Counters
from outbox_relay.upkeep import upkeep_steps
from support.database import Database


def test_what_was_left_of_rates_is_forgotten_where_no_limit_is_set_any_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tenants had one, and not at every turn; what somebody has set of a tenant stays."""
    monkeypatch.setattr("outbox_relay.upkeep.TOKENS_BATCH", 2)
    link = database.link("relay")
    database.rows(
        "INSERT INTO {s}.tenant_limits (queue, name, weight, tokens, tokens_at, updated_at) "
        "SELECT 'notes', n, CASE n WHEN 'heavy' THEN 3 ELSE 1 END, 0, {s}.clock() - interval '2 days', {s}.clock() "
        "FROM unnest(ARRAY['', 'a', 'b', 'heavy']) AS n"
    )
    steps = upkeep_steps(Counters())
    assert [step(link) for step in steps][1:] == [True]
    assert [step(link) for step in steps][1:] == [False]
    assert [step(link) for step in steps][1:] == [None]
    assert database.rows("SELECT name FROM {s}.tenant_limits") == [("heavy",)]
