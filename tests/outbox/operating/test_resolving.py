"""A person's word on an effect: only where nobody can know, only while nobody runs, and never without an audit row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from outbox import EffectNotFound, EffectNotOpen, EffectState, JobNotFound, NameRefused, PayloadError, resolve_effect
from outbox.database.link import Link
from outbox.leases.effects import EffectBook, Remote
from outbox.leases.ending import fail, retry
from outbox.operating.resolving import job_effects, list_notes, list_open_effects
from support.database import Database
from support.jobs import BROKEN, release_all, running, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

WHO: dict[str, Any] = {"evidence": "dashboard, ch_1", "by": "ann", "reason": "checked"}
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def on_hold(database: Database, link: Link, engine: sa.Engine) -> UUID:
    """Return a failed job with the uncertain effect "charge", and the confirmed one "mail" without its result."""
    (mine,) = running(database, link)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        call = uuid4()
        charge = EffectBook(database.statements, mine.lease, 1, "charge")
        charge.begin(connection, b"1", call)
        charge.leave(connection, call, EffectState.UNCERTAIN, "TimeoutError", "no answer")
        mail = EffectBook(database.statements, mine.lease, 1, "mail")
        mail.begin(connection, b"2", call)
        mail.confirm(connection, call, "send", Remote(None, "result: is too large", "m_1"))
    fail(link, [(mine.lease, BROKEN)])
    return mine.lease.job_id


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_confirmed_with_a_result(database: Database, link: Link, on_hold: UUID, driver: str) -> None:
    """The effect is settled with what the job is to get; the audit has who, why, the evidence and what was there."""
    with Session(database.keep(sa.create_engine(database.driver_url(driver)))) as session:
        view = resolve_effect(session, on_hold, "charge", "confirmed", result={"id": 7}, **WHO)
        session.commit()
    assert (view.state, view.settled_by, view.confirmed_at is None) == (EffectState.CONFIRMED, "person", False)
    assert database.value("SELECT result FROM {s}.effects WHERE name = 'charge'") == {"id": 7}
    (note,) = list_notes(link, on_hold)
    assert (note.actor, note.action, note.reason) == ("ann", "effect.resolve", "checked")
    told = {
        "evidence": "dashboard, ch_1",
        "result_given": True,
        "effect": "charge",
        "as": "confirmed",
        "was": "uncertain",
    }
    assert note.detail == told | {"attempt": 1, "remote_request_id": None}


def test_not_done(database: Database, link: Link, engine: sa.Engine, on_hold: UUID) -> None:
    """The effect may be sent again, and is no longer waited for."""
    assert [effect.name for effect in list_open_effects(link)] == ["charge"]
    with engine.begin() as connection:
        assert resolve_effect(connection, on_hold, "charge", "not-done", **WHO).state is EffectState.NOT_DONE
    assert list_open_effects(link) == []
    assert [(effect.name, effect.state) for effect in job_effects(link, on_hold).effects] == [
        ("charge", EffectState.NOT_DONE),
        ("mail", EffectState.CONFIRMED),
    ]


def test_a_job_that_never_runs_again_gets_no_result(database: Database, engine: sa.Engine, on_hold: UUID) -> None:
    """Its payload was erased, and with it the key, if it was sealed: nothing of it may stand in clear."""
    database.rows("UPDATE {s}.jobs SET payload = 'null', payload_erased_at = now()")
    with engine.begin() as connection:
        with pytest.raises(NameRefused, match="payload was erased"):
            resolve_effect(connection, on_hold, "charge", "confirmed", result={"iban": "secret"}, **WHO)
        assert resolve_effect(connection, on_hold, "charge", "confirmed", **WHO).state is EffectState.CONFIRMED
    assert database.count("effects WHERE result IS NOT NULL") == 0


def test_a_result_that_could_not_be_stored_is_given_afterwards(
    database: Database, engine: sa.Engine, on_hold: UUID
) -> None:
    """Only as confirmed, and only with a result; how the effect was confirmed stays on record."""
    with engine.begin() as connection:
        for outcome, more in (("confirmed", {}), ("not-done", {})):
            with pytest.raises(EffectNotOpen, match=r"confirmed already, and lacks only its result.*--result-file"):
                resolve_effect(connection, on_hold, "mail", outcome, **WHO, **more)  # type: ignore[arg-type]
        view = resolve_effect(connection, on_hold, "mail", "confirmed", result=None, **WHO)
        assert (view.settled_by, view.result_note, view.remote_request_id) == ("send", None, "m_1")
        with pytest.raises(EffectNotOpen, match="confirmed already; only what is pending"):
            resolve_effect(connection, on_hold, "mail", "confirmed", result=1, **WHO)
    assert database.value("SELECT result::text FROM {s}.effects WHERE name = 'mail'") == "null"


def test_a_result_that_a_person_left_out_is_given_afterwards(
    database: Database, engine: sa.Engine, on_hold: UUID
) -> None:
    """Confirmed without a result, it can be given one once; None that was given is one."""
    with engine.begin() as connection:
        resolve_effect(connection, on_hold, "charge", "confirmed", **WHO)
        with pytest.raises(EffectNotOpen, match=r"lacks only its result.*not given"):
            resolve_effect(connection, on_hold, "charge", "confirmed", **WHO)
        view = resolve_effect(connection, on_hold, "charge", "confirmed", result={"id": 1}, **WHO)
        assert (view.settled_by, view.state) == ("person", EffectState.CONFIRMED)
        with pytest.raises(EffectNotOpen, match="confirmed already; only what is pending"):
            resolve_effect(connection, on_hold, "charge", "confirmed", result=2, **WHO)
    assert database.value("SELECT result FROM {s}.effects WHERE name = 'charge'") == {"id": 1}
    assert database.count("audit WHERE action = 'effect.resolve'") == 2


def test_a_running_job_is_left_alone(database: Database, link: Link, engine: sa.Engine) -> None:
    """Its attempt may know better in a moment; afterwards the same word is taken."""
    (mine,) = running(database, link)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        EffectBook(database.statements, mine.lease, 1, "charge").begin(connection, b"1", uuid4())
    with engine.begin() as connection:
        with pytest.raises(EffectNotOpen, match="running"):
            resolve_effect(connection, mine.lease.job_id, "charge", "not-done", **WHO)
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1
    assert database.count("audit") == 0
    retry(link, [(mine.lease, BROKEN, 0.0)])
    with engine.begin() as connection:
        assert resolve_effect(connection, mine.lease.job_id, "charge", "not-done", **WHO).job_state == "ready"


def test_no_attempt_begins_in_the_middle_of_it(database: Database, link: Link, engine: sa.Engine) -> None:
    """While a resolution is open its waiting job is not claimed; one that waits for a claim is refused after it."""
    (mine,) = running(database, link)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        EffectBook(database.statements, mine.lease, 1, "charge").begin(connection, b"1", uuid4())
    retry(link, [(mine.lease, BROKEN, 0.0)])
    release_all(link)
    job_id = mine.lease.job_id
    with engine.connect() as operator, ThreadPoolExecutor(1) as pool:
        resolve_effect(operator, job_id, "charge", "not-done", **WHO)
        assert take(link, [job_id]) == []
        operator.rollback()
        with link.transaction() as claimer:
            claimer.execute(database.sql("SELECT 1 FROM {s}.outbox FOR UPDATE"))
            waiting = pool.submit(resolve_effect, operator, job_id, "charge", "not-done", **WHO)
            until(lambda: database.count(WAITING))
            assert take(link, [job_id])
        with pytest.raises(EffectNotOpen, match="running"):
            waiting.result(30)


def test_nonsense_is_refused_before_any_sql() -> None:
    """Who, why, the evidence, the name and the result are within their bounds, or the target is not even looked at."""
    for change, error in (
        ({"by": ""}, NameRefused),
        ({"reason": "a\nb"}, NameRefused),
        ({"evidence": ""}, NameRefused),
        ({"evidence": "x" * 2001}, NameRefused),
        ({"name": "a b"}, NameRefused),
        ({"outcome": "maybe"}, NameRefused),
        ({"outcome": "not-done", "result": 1}, NameRefused),
        ({"result": float("inf")}, PayloadError),
        ({"result": "x" * 70_000}, PayloadError),
    ):
        given: dict[str, Any] = {"job_id": uuid4(), "name": "charge", "outcome": "confirmed"} | WHO | change
        with pytest.raises(error):
            resolve_effect(None, **given)  # type: ignore[arg-type]


def test_unknown_jobs_and_effects_are_told_apart(engine: sa.Engine, on_hold: UUID) -> None:
    """Each error names what is missing, and the transaction stays healthy."""
    with engine.begin() as connection:
        with pytest.raises(JobNotFound):
            resolve_effect(connection, uuid4(), "charge", "not-done", **WHO)
        with pytest.raises(EffectNotFound, match="refund"):
            resolve_effect(connection, on_hold, "refund", "not-done", **WHO)
        assert connection.execute(sa.text("SELECT 1")).scalar() == 1
