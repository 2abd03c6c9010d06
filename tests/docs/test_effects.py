"""What the page about effects shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from outbox import enqueue
from outbox_consumer.registry import Registry
from support.consuming import Desk
from support.database import Database

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "effects.md").read_text(encoding="utf-8")


@pytest.fixture
def blocks() -> list[dict[str, Any]]:
    """Return what each of the page's Python blocks defines."""
    found: list[dict[str, Any]] = []
    for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, Any] = {"__name__": f"page_{len(found)}"}
        exec(compile(text, "docs/effects.md", "exec"), names)  # noqa: S102 - our own page
        found.append(names)
    return found


def test_the_handlers_charge_and_refund(database: Database, prefix: str, blocks: list[dict[str, Any]]) -> None:
    """Both handlers are accepted, and a job of each has its confirmed effect."""
    charge, refund, _ = blocks
    desk = Desk(database, prefix)
    handlers = [charge["ChargeHandler"](), refund["RefundHandler"]()]
    Registry(handlers)
    try:
        with database.engine().begin() as connection:
            enqueue(connection, charge["Charge"](order_id=1, cents=500))
            enqueue(connection, refund["Refund"](order_id=1))
        desk.start(*handlers)
        desk.done(2)
    finally:
        desk.close()
    query = "SELECT name, state, remote_request_id FROM {s}.effects ORDER BY name"
    assert database.rows(query) == [("charge", "confirmed", "ch_1"), ("refund", "confirmed", None)]


def test_a_webhook_is_taken_once(database: Database, blocks: list[dict[str, Any]]) -> None:
    """A second delivery gets the first one's answer."""
    for _ in range(2):
        with Session(database.engine()) as session:
            assert blocks[2]["on_webhook"](session, "evt_1", "paid") == "booked paid"
    assert database.count("inbox") == 1
