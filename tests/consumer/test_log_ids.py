"""While an attempt runs, whatever is logged there names it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.logs import JsonFormatter
from outbox_consumer.contract.job import Job
from support.consuming import QUEUE, AsyncTask, Desk, async_handler, handler
from support.isolated import ScriptHandler
from support.isolated_payloads import submit

shop, mine = logging.getLogger("shop"), logging.getLogger("mine")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Yield what the logger of a handler's own code has written, as JSON."""
    stream = io.StringIO()
    writer = logging.StreamHandler(stream)
    writer.setFormatter(JsonFormatter())
    shop.addHandler(writer)
    shop.setLevel(logging.INFO)
    mine.addHandler(writer)
    yield stream
    shop.removeHandler(writer)
    mine.removeHandler(writer)


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


def test_lines_of_a_handlers_own_process_have_them_too(desk: Desk, lines: io.StringIO, tmp_path: Path) -> None:
    """They are written here, where the attempt is known."""
    desk.start(ScriptHandler(), concurrency=1)
    job_id = submit(desk, "logs", tmp_path)
    desk.done(1)
    [said] = map(json.loads, lines.getvalue().splitlines())
    assert (said["job_id"], said["attempt"], said["queue"]) == (str(job_id), 1, QUEUE)
