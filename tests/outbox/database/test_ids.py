"""Job ids are UUIDs of version 7, in the order in which they were made."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122

from outbox.database.ids import id_from, made_at, new_id, new_ids


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


def test_ids_of_instants_stand_in_their_order() -> None:
    """To the microsecond, whatever the digests; the same twice for the same."""
    start = datetime(2030, 1, 31, 12, 0, 0, 999_000, UTC)
    instants = [start + timedelta(microseconds=number) for number in range(3000)]
    ids = [id_from(instant, digest=(1 << 62) - number) for number, instant in enumerate(instants)]
    assert ids == sorted(set(ids))
    assert {(one.version, one.variant) for one in ids} == {(7, RFC_4122)}
    assert (made_at(ids[0]), id_from(start, 1 << 62)) == (start, ids[0])
