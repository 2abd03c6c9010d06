"""Job ids are UUIDs of version 7, in the order in which they were made."""

from __future__ import annotations

import time
from uuid import RFC_4122

from outbox.database.ids import new_id, new_ids


def test_ids_of_a_call_ascend() -> None:
    """However fast they are made, each is greater than the one before, and all differ."""
    ids = new_ids(10_000)
    assert ids == sorted(set(ids))
    assert new_ids(0) == []


def test_an_id_holds_version_variant_and_time() -> None:
    """The first 48 bits are the milliseconds of the clock."""
    before = time.time_ns() // 1_000_000
    made = [new_id(), *new_ids(1)]
    after = time.time_ns() // 1_000_000
    assert {(one.version, one.variant) for one in made} == {(7, RFC_4122)}
    assert all(before <= one.int >> 80 <= after for one in made)
