"""What a schedule may be, and what of it is refused, before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox import (
    Schedule,
    ScheduleRefused,
    preview_schedule,
)
from outbox.schedules.contents import plain_content
from outbox.schedules.declaring import checked
from outbox_schemas import NameRefused, PayloadError
from support.sealing import ring, using

from .conftest import Report, daily


class Secret(Report):
    """One that is stored sealed."""

    kind = "test.secret"
    sealed = True


REFUSED = [
    ({"name": "a@b"}, "name"), ({"name": ""}, "name"), ({"name": "x" * 101}, "name"), ({"cron": "0 0 31 2 *"}, "cron"),
    ({"cron": None}, "cron"), ({"cron": " "}, "cron"), ({"every": 5}, "cron"), ({"cron": "every 5s"}, "cron"),
    ({"cron": None, "every": 0}, "every"),
    ({"time_zone": "America/New_Yrok"}, "time_zone"), ({"tenant": ""}, "tenant"), ({"priority": 101}, "priority"),
    ({"missed": "some"}, "missed"), ({"missed": None}, "missed"), ({"missed_limit": 0}, "missed_limit"),
    ({"missed_limit": 10_001}, "missed_limit"), ({"grace": -1}, "grace"), ({"grace": timedelta(days=2)}, "grace"),
    ({"jitter": 0.5}, "jitter"), ({"jitter": "5"}, "jitter"), ({"starts_at": datetime(2026, 1, 1)}, "starts_at"),  # noqa: DTZ001
    ({"ends_at": "tomorrow"}, "ends_at"),
    ({"starts_at": datetime(2026, 1, 2, tzinfo=UTC), "ends_at": datetime(2026, 1, 1, tzinfo=UTC)}, "ends_at"),
    ({"payload": Secret()}, "payload"), ({"payload": {"account": 1}}, "payload"), ({"payload": None}, "payload"),
]  # fmt: skip


@pytest.mark.parametrize(("terms", "field"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_term_that_cannot_be_is_refused_with_its_field(terms: dict[str, Any], field: str) -> None:
    """Where it is written down, in one line that names the field."""
    with pytest.raises((ScheduleRefused, NameRefused, PayloadError)) as caught:
        Schedule(**{"name": "a", "payload": Report(), "cron": "0 2 * * *"} | terms)
    assert caught.value.field == field


def test_where_all_is_sealed_no_schedule_lies_in_clear() -> None:
    """Keys that seal every payload refuse schedules, with or without a class."""
    with using(ring("k1", seal_all=True)):
        with pytest.raises(PayloadError, match="in clear"):
            checked(daily("a"))
        with pytest.raises(PayloadError, match="in clear"):
            plain_content({}, kind="k")


def test_the_class_and_the_plain_object_store_the_same() -> None:
    """A payload by its class and the same object by hand have one digest, so that neither looks changed."""
    mine = checked(daily("a"))
    plain = plain_content({"account": 1}, kind="test.report", queue="notes")
    assert (plain.payload, plain.digest, plain.kind, plain.queue) == (mine.payload, mine.digest, mine.kind, mine.queue)


@pytest.mark.parametrize("n", [0, -1, 1001, True, "3"])
def test_a_preview_is_bounded(n: Any) -> None:
    """One to a thousand occurrences."""
    with pytest.raises(ScheduleRefused, match=r"^n: "):
        preview_schedule(cron="* * * * *", after=datetime(2026, 1, 1, tzinfo=UTC), n=n)


def test_a_preview_refuses_an_end_before_the_start() -> None:
    """As the schedule itself is refused, where an empty preview would say that it is merely over."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with pytest.raises(ScheduleRefused, match=r"^ends_at: "):
        preview_schedule(cron="* * * * *", after=noon, starts_at=noon, ends_at=noon - timedelta(hours=1))
