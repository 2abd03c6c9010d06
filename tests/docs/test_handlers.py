"""What the guide on handlers shows of async ones runs as it stands."""

from __future__ import annotations

import importlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outbox import enqueue
from outbox.settings import load
from outbox_consumer import run_consumer
from support.database import Database
from support.waiting import until

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "handlers.md").read_text(encoding="utf-8")


def test_the_async_handler_runs(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer alone takes the example's job to its end, with its checkpoint and its effect."""
    (tmp_path / "fetching.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("fetching")
    with database.engine().begin() as connection:
        ref = enqueue(connection, module.FetchRates(day="2025-01-01"))
    stop = threading.Event()
    settings = load(env={}, database_url=database.url)
    with ThreadPoolExecutor(1) as pool:
        consumer = pool.submit(run_consumer, "fetching", settings=settings, stop=stop)
        try:
            until(lambda: database.count("jobs WHERE id = %s AND state = 'succeeded'", ref.id) == 1)
        finally:
            stop.set()
        assert consumer.result(60) == 0
    assert database.rows("SELECT value FROM {s}.checkpoints") == [(3,)]
    assert database.rows("SELECT name, state FROM {s}.effects") == [("announce", "confirmed")]
