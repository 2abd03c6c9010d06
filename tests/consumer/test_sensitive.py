"""What is sensitive in a job's payload stays out of its errors, tracebacks and log lines."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import SecretStr, field_validator

from outbox import enqueue
from outbox.logs import JsonFormatter, TextFormatter
from outbox_consumer import EffectResult, RetryableError, RetryPolicy, TerminalError
from outbox_schemas import Payload, Sensitive
from support.consuming import QUEUE, Desk, async_handler, handler
from support.waiting import until

CARD = 'canary-4111 "quoted"\nsecond-canary line'
TOKEN = "canary-token-1f"
SAID = ("raises", "unstorable", "late")


class Charge(Payload):
    """Has what nobody may see."""

    kind: ClassVar[str] = "test.charge"
    queue: ClassVar[str] = QUEUE
    card: Annotated[str, Sensitive]
    token: SecretStr
    account: str

    def logical_key(self) -> str:
        """Return the account."""
        return self.account


class Checked(Charge):
    """Has a validator that quotes what it refuses."""

    kind: ClassVar[str] = "test.checked"

    @field_validator("card")
    @classmethod
    def _check(cls, card: str) -> str:
        if card == CARD:
            raise ValueError(f"{card} is no card")
        return card


class AsyncCharge(Charge):
    """The same for an asynchronous handler."""

    kind: ClassVar[str] = "test.async_charge"


def submitted(desk: Desk, kind: type[Charge] = Charge, card: str = CARD) -> Any:
    """Commit one job."""
    with desk.database.engine().begin() as connection:
        return enqueue(connection, kind(card=card, token=SecretStr(TOKEN), account="acct-91")).id


def leaks(desk: Desk, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what has been written anywhere, in whatever table, that holds a canary. The payload itself is where it
    belongs.
    """
    tables = desk.database.rows(
        "SELECT c.relname FROM pg_class AS c WHERE c.relkind = 'r' AND c.relnamespace = '{s}'::regnamespace"
    )
    assert ("effects",) in tables
    rows = [
        row
        for (table,) in tables
        for row in desk.database.rows(f"SELECT to_jsonb(t) - 'payload' FROM {{s}}.{table} AS t")
    ]
    return [text for text in [*map(json.dumps, rows), caplog.text] if "canary" in text]


def failing(job: Any, payload: Any) -> None:
    """Quote everything in every way."""
    logging.getLogger("app").warning("charging %s with %r", payload.card, payload, extra={"token": TOKEN})
    try:
        raise KeyError(payload.card)
    except KeyError as error:
        raise RetryableError(f"{payload.card} {payload.token.get_secret_value()} {payload!r} {error} acct") from error


@pytest.fixture
def masked_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Capture the log as the product writes it."""
    caplog.handler.setFormatter(TextFormatter())
    return caplog


@pytest.mark.parametrize("kind", [Charge, AsyncCharge])
def test_errors_and_logs_of_a_handler_hold_no_sensitive_value(
    kind: type[Charge], desk: Desk, masked_log: pytest.LogCaptureFixture
) -> None:
    """A handler, synchronous or not, that quotes its payload in messages, causes and log lines gives nothing away."""

    async def failing_later(job: Any, payload: Any) -> None:
        failing(job, payload)

    job_id = submitted(desk, kind)
    made = handler(failing, payload=kind) if kind is Charge else async_handler(failing_later, payload=kind)
    desk.start(made)
    desk.done(1, "failed")
    message = desk.last_error(job_id)[2]
    assert message.startswith("*** *** ")
    assert "account='acct-91'" in message
    assert "charging ***" in masked_log.text
    assert leaks(desk, masked_log) == []


@pytest.mark.parametrize("kind", [Charge, AsyncCharge])
def test_effects_on_a_thread_of_the_handlers_own_hold_no_sensitive_value(
    kind: type[Charge], desk: Desk, masked_log: pytest.LogCaptureFixture
) -> None:
    """Such a thread knows nothing of its attempt but the job, and what an effect leaves there is masked nevertheless:
    its error, the other side's id, the note of a result that can't be stored, the evidence of a late one.
    """

    def send(job: Any, payload: Any, says: str) -> Any:
        logging.getLogger("app").warning("the gateway hears of %s", payload.card)
        if says == "raises":
            raise RuntimeError(f"the gateway said no to {payload.card} {TOKEN}")
        if says == "late":
            desk.take_lease(job.id)
        return EffectResult({payload.card: float("nan")}, remote_id=f"id of {payload.card}")

    def handle(job: Any, payload: Any) -> None:
        with ThreadPoolExecutor(1) as threads:
            for says in SAID:
                call = threads.submit(job.effect, says, {}, send=lambda *_, says=says: send(job, payload, says))
                assert call.exception(30) is not None

    async def handle_later(job: Any, payload: Any) -> None:
        loop = asyncio.get_running_loop()

        def call(says: str) -> None:
            async def send_later(*_: Any) -> Any:
                return send(job, payload, says)

            made = job.effect_async(says, {}, send=send_later)
            assert asyncio.run_coroutine_threadsafe(made, loop).exception(30) is not None

        for says in SAID:
            # By a thread, whose context is the task's that the call is made in.
            await loop.run_in_executor(None, call, says)

    job_id = submitted(desk, kind)
    declared: dict[str, Any] = {"payload": kind, "retry": RetryPolicy(max_attempts=1), "lease": 30}
    desk.start(handler(handle, **declared) if kind is Charge else async_handler(handle_later, **declared))
    found = "SELECT detail ->> 'remote_request_id' FROM {s}.audit WHERE action = 'effect.late' AND subject = %s"
    until(lambda: desk.database.rows(found, str(job_id)) == [("id of ***",)])
    found = "SELECT name, error_message, remote_request_id FROM {s}.effects ORDER BY created_at"
    assert desk.database.rows(found) == [
        ("raises", "the gateway said no to *** ***", None),
        ("unstorable", None, "id of ***"),
        ("late", None, None),
    ]
    assert masked_log.text.count("the gateway hears of ***") == len(SAID)
    assert leaks(desk, masked_log) == []


def test_errors_of_apply_hold_no_sensitive_value(desk: Desk, masked_log: pytest.LogCaptureFixture) -> None:
    """What `apply` quotes is masked as well."""

    def apply(_session: Any, _job: Any, result: Any) -> None:
        logging.getLogger("app").error("can't write %s", result)
        raise RuntimeError(result)

    job_id = submitted(desk)
    desk.start(handler(lambda _job, payload: payload.card, apply, payload=Charge))
    desk.done(1, "failed")
    assert desk.last_error(job_id)[2] == "***"
    assert leaks(desk, masked_log) == []


def test_a_validator_that_quotes_is_not_heard(desk: Desk, masked_log: pytest.LogCaptureFixture) -> None:
    """A stored payload that its class refuses fails as invalid, and the validator's own words are left out."""
    job_id = submitted(desk, Checked, "4111")
    desk.database.rows(
        "UPDATE {s}.jobs SET payload = jsonb_set(payload, '{card}', to_jsonb(%s::text)) WHERE id = %s", CARD, job_id
    )
    desk.start(handler(payload=Checked))
    desk.done(1, "failed")
    assert desk.last_error(job_id) == (
        "terminal",
        "payload_invalid",
        "the stored payload can't be read: payload.card: refused by a rule of its class (value_error)",
    )
    assert leaks(desk, masked_log) == []


class Raises(Charge):
    """Has a validator that raises what pydantic doesn't catch, with all that it knows."""

    kind: ClassVar[str] = "test.raises"

    @field_validator("card")
    @classmethod
    def _check(cls, card: str) -> str:
        if card == CARD:
            raise RAISED[0](card)
        return card


RAISED: list[type[BaseException]] = [Exception]


class OwnError(Exception):
    """Of nobody's knowledge."""


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (KeyError, ("terminal", "payload_invalid")),
        (AttributeError, ("terminal", "payload_invalid")),
        (OwnError, ("unknown", "OwnError")),
        (ConnectionError, ("retryable", "connection_error")),
        (SystemExit, ("terminal", "payload_invalid")),
        (RetryableError, ("retryable", "retryable")),
        (TerminalError, ("terminal", "terminal")),
    ],
)
@pytest.mark.parametrize("lane", ["thread", "task"])
def test_no_error_that_reading_raises_is_quoted(
    raised: type[BaseException],
    expected: tuple[str, str],
    lane: str,
    desk: Desk,
    masked_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a validator raises keeps its meaning and loses its words: what is sensitive is not known by then."""
    job_id = submitted(desk, Raises, "4111")
    desk.database.rows(
        "UPDATE {s}.jobs SET payload = jsonb_set(payload, '{card}', to_jsonb(%s::text)) WHERE id = %s", CARD, job_id
    )
    monkeypatch.setattr(f"{__name__}.RAISED", [raised])

    async def later(*_: Any) -> None: ...

    declared = {"retry": RetryPolicy(max_attempts=2, max_unknown=2, base=timedelta(0)), "payload": Raises}
    desk.start(handler(**declared) if lane == "thread" else async_handler(later, **declared))
    desk.done(1, "failed")
    assert desk.last_error(job_id) == (*expected, f"the stored payload can't be read: {raised.__name__}")
    assert leaks(desk, masked_log) == []


def test_a_handler_sees_what_is_hidden(desk: Desk) -> None:
    """Secrets come back from storage as they were submitted."""
    seen: list[Any] = []
    submitted(desk)
    desk.start(handler(lambda _job, payload: seen.append((payload.card, payload.token)), payload=Charge))
    desk.done(1)
    assert seen == [(CARD, SecretStr(TOKEN))]


def test_a_neighbour_is_masked_by_its_own_payload_only(desk: Desk, masked_log: pytest.LogCaptureFixture) -> None:
    """What one attempt hides is nobody else's concern afterwards: the same word of another job stays readable."""
    masked_log.handler.setFormatter(JsonFormatter())
    submitted(desk)

    def handle(_job: Any, payload: Any) -> None:
        logging.getLogger("app").warning("first %s", payload.card)

    running = desk.start(handler(handle, payload=Charge), concurrency=1)
    desk.done(1)
    running.stop()
    logging.getLogger("app").warning("later second-canary line")
    assert [json.loads(line)["event"] for line in masked_log.text.splitlines() if '"app"' in line] == [
        "first ***",
        "later second-canary line",
    ]
