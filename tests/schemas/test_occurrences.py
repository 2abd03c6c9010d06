"""The logical keys of occurrences."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_schemas import occurrence_key, occurrence_of
from outbox_schemas.names import check_key

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True)
INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(8999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@given(NAMES, INSTANTS)
def test_a_key_gives_back_what_it_names(name: str, at: datetime) -> None:
    """Name and instant, to the second, in a key that may be stored."""
    key = check_key(occurrence_key(name, at))
    assert occurrence_of(key) == (name, at.replace(microsecond=0), False)
    asked = check_key(occurrence_key(name, at, "0123456789ab"))
    assert occurrence_of(asked) == (name, at.replace(microsecond=0), True)


@pytest.mark.parametrize(
    "key",
    ["", "invoice-7", "a@b", "@2026-03-29T01:00:00Z", "a@2026-02-31T01:00:00Z", "a@2026-03-29T01:00:00",
     "a@2026-03-29T01:00:00Z ", "a@now-2026-03-29T01:00:00Z", "a@2026-03-29T01:00:00Z-0123456789ab",
     "a\n@2026-03-29T01:00:00Z",
     "a@\u0662026-03-29T01:00:00Z", "x" * 101 + "@2026-03-29T01:00:00Z"],
)  # fmt: skip
def test_other_keys_name_none(key: str) -> None:
    """A key of one's own is no occurrence, unless it looks exactly like one."""
    assert occurrence_of(key) is None
