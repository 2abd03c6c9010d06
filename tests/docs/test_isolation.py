"""What the page on handlers in processes shows runs, in a process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from outbox import enqueue
from outbox.settings import load
from outbox_consumer.contract.registry import load_handlers
from support.consuming import RunningConsumer
from support.database import Database
from support.waiting import until

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "isolation.md").read_text(encoding="utf-8")


def test_example_of_the_page_runs(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is declared within bounds, can be sent to a child, and its job succeeds."""
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "scans_example.py").write_text(example, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    handlers = load_handlers(["scans_example"]).handlers()
    try:
        with database.engine().begin() as connection:
            enqueue(connection, sys.modules["scans_example"].ConvertScan(scan_id=7))
        settings = load(env={}, database_url=database.url, consumer={"concurrency": 1})
        running = RunningConsumer(settings, handlers)
        try:
            until(lambda: running.counted("succeeded") == 1)
        finally:
            running.stop()
    finally:
        sys.modules.pop("scans_example", None)
