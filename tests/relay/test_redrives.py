"""The relay's steps for redrives: turns, and the end of what is long over."""

from __future__ import annotations

from typing import Any

from outbox_relay.counters import Counters
from outbox_relay.redrives import redrive_steps

_OVER = """
INSERT INTO {s}.redrive_operations (id, state, actor, reason, chosen, by_ids, fingerprint, rate_per_s, canary,
  stop_on_same_code, ratio_at_least, include_uncertain, total, next_at, created_at, ended_at)
SELECT gen_random_uuid(), 'done', 'me', 'x', '{}', true, '', 1, 0, true, 10, false, 1, now(), now(),
  now() - n * interval '40 days'
FROM generate_series(1, 4) AS n
"""


def test_a_sweep_deletes_what_is_long_over(database: Any) -> None:
    """By itself, without any setting, and nothing else; the next look is not at once."""
    database.rows(_OVER)
    turns, over = redrive_steps(Counters(), lambda: None)
    link = database.link()
    turns(link)
    assert database.count("redrive_operations") == 4
    over(link)
    assert database.count("redrive_operations") == 2
    database.rows(_OVER)
    over(link)
    assert database.count("redrive_operations") == 6
