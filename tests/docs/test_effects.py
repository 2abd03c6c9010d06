"""What the page about effects shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.orm import Session

from outbox import enqueue
from outbox_consumer import RetryPolicy
from outbox_consumer.contract.registry import Registry
from support.consuming import Desk
from support.database import Database
from support.waiting import until

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
    charge, _, refund, _ = blocks
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
            assert blocks[3]["on_webhook"](session, "evt_1", "paid") == "booked paid"
    assert database.count("inbox") == 1


@pytest.mark.parametrize(
    ("answer", "state", "error_class"),
    [
        (lambda _: httpx.Response(429, headers={"Retry-After": "7"}), "not_done", "throttled"),
        (lambda _: httpx.Response(404), "not_done", "terminal"),
        (lambda _: httpx.Response(500), "uncertain", "retryable"),
        (
            lambda request: (_ for _ in ()).throw(httpx.ConnectError("refused", request=request)),
            "not_done",
            "retryable",
        ),
        (lambda request: (_ for _ in ()).throw(httpx.ReadTimeout("late", request=request)), "uncertain", "retryable"),
    ],
    ids=["429", "404", "500", "refused", "late"],
)
def test_the_handler_of_mails_tells_what_surely_was_not_sent(
    database: Database, prefix: str, blocks: list[dict[str, Any]], answer: Any, state: str, error_class: str
) -> None:
    """Each answer leaves the effect in the state that the page promises."""
    mail = blocks[1]
    mail["client"].close()
    mail["client"] = httpx.Client(base_url="https://mail.example", transport=httpx.MockTransport(answer))
    desk = Desk(database, prefix)
    try:
        with database.engine().begin() as connection:
            enqueue(connection, mail["SendMail"](letter_id=1))
        mail["SendMailHandler"].retry = RetryPolicy(max_attempts=1)  # no other attempt changes what this one has left
        desk.start(mail["SendMailHandler"]())
        until(lambda: database.count("attempts") == 1)
    finally:
        desk.close()
        mail["client"].close()
    assert database.rows("SELECT state FROM {s}.effects") == [(state,)]
    assert database.rows("SELECT error_class FROM {s}.attempts WHERE number = 1") == [(error_class,)]
