"""While an attempt runs, whatever is logged there names it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from outbox.logs import JsonFormatter
from outbox_consumer.contract.job import Job
from support.consuming import QUEUE, AsyncTask, Desk, async_handler, handler

shop = logging.getLogger("shop")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Yield what the logger of a handler's own code has written, as JSON."""
    stream = io.StringIO()
    writer = logging.StreamHandler(stream)
    writer.setFormatter(JsonFormatter())
    shop.addHandler(writer)
    shop.setLevel(logging.INFO)
    yield stream
    shop.removeHandler(writer)


def test_handlers_lines_have_the_ids_of_their_own_attempt(desk: Desk, lines: io.StringIO) -> None:
    """Of threads and tasks beside each other, in `handle` and in `apply`."""

    def handle(_job: Job, payload: Any) -> None:
        shop.info("handled", extra={"name_of": payload.name})

    def apply(_session: Any, job: Job, _result: Any) -> None:
        shop.info("applied", extra={"name_of": str(job.id)})

    async def handle_async(_job: Job, payload: Any) -> None:
        shop.info("handled", extra={"name_of": payload.name})

    desk.start(handler(handle, apply), async_handler(handle_async, apply, payload=AsyncTask))
    names = ["a", "b", "c"]
    ids = dict(zip(names, map(str, desk.submit(*names)), strict=True))
    ids |= dict(zip("xyz", map(str, desk.submit(*"xyz", payload=AsyncTask)), strict=True))
    desk.done(6)
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    handled = {one["name_of"]: one for one in said if one["event"] == "handled"}
    assert {name: one["job_id"] for name, one in handled.items()} == ids
    assert {(one["attempt"], one["queue"]) for one in said} == {(1, QUEUE)}
    assert handled["x"]["kind"] == AsyncTask.kind
    applied = [one for one in said if one["event"] == "applied"]
    assert [one["job_id"] for one in applied] == [one["name_of"] for one in applied]
    assert len(applied) == 6
    shop.info("idle")
    assert "job_id" not in json.loads(lines.getvalue().splitlines()[-1])
