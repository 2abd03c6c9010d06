"""Looking at a redrive before it is decided: exact, fitting while nothing changes, acted on once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import (
    DeadFilter,
    JobState,
    RedriveRefused,
    StateChanged,
    preview_redrive,
    redrive,
)
from outbox.database.link import Link
from outbox.leases.ending import Failure, fail
from outbox.operating.dead_letters import discard, list_dead_letters
from outbox.redrives.operations import steer_redrive
from support.database import Database
from support.jobs import Note, dead, look, release_all, take
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")


WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def effect(database: Database, job_id: UUID, state: str, name: str = "charge") -> None:
    """Write an effect of a job's first attempt."""
    database.rows(
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, confirmed_at) "
        "VALUES (%s, %s, %s, '\\x00', 1, now(), CASE WHEN %s = 'confirmed' THEN now() END)",
        job_id, name, state, state,
    )  # fmt: skip


def test_a_preview_is_exact_and_its_token_fits_while_nothing_changes(
    database: Database, link: Link, engine: sa.Engine
) -> None:
    """By a filter: the count, the groups, a sample; jobs that fail later are no part of it, and do not spoil it."""
    ids = dead(database, link, 3, code="timeout") + dead(database, link, 2, code="gone", tenant="other")
    with engine.begin() as connection:
        seen = preview_redrive(connection, where=DeadFilter(code="timeout"))
        assert (seen.total, [(group["code"], group["jobs"]) for group in seen.groups]) == (3, [("timeout", 3)])
        assert [UUID(one["id"]) for one in seen.sample] == sorted(ids[:3])
    assert (database.count("audit"), database.count("redrive_operations")) == (0, 0)
    later = dead(database, link, 1, code="timeout")
    with engine.begin() as connection:
        done = redrive(connection, where=DeadFilter(code="timeout"), acknowledge=seen.token, by="me", reason="x")
    assert list(done.redriven) == sorted(ids[:3])
    assert {letter.job_id for letter in list_dead_letters(link)} == {*ids[3:], *later}


@pytest.mark.parametrize(
    "change", ["redriven", "discarded", "failed again", "effect settled", "payload changed", "payload erased"]
)
def test_any_change_since_the_preview_is_refused(
    database: Database, link: Link, engine: sa.Engine, change: str
) -> None:
    """Whoever acknowledges a state that is no more must look again; nothing is written."""
    first, second = dead(database, link, 2)
    effect(database, first, "uncertain")
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        token = preview_redrive(connection, where=where).token
        if change == "redriven":
            redrive(connection, first, by="you", reason="x")
        elif change == "discarded":
            discard(connection, [first], by="you", reason="x")
        elif change == "failed again":
            redrive(connection, first, by="you", reason="x")
    if change == "failed again":
        release_all(link)
        fail(link, [(item.lease, Failure("unknown", "ValueError", "m", None)) for item in take(link, [first])])
    elif change == "effect settled":
        database.rows("UPDATE {s}.effects SET state = 'confirmed', confirmed_at = now()")
    elif change == "payload changed":
        database.rows("UPDATE {s}.jobs SET payload_digest = '\\x01' WHERE id = %s", second)
    elif change == "payload erased":
        database.rows("UPDATE {s}.jobs SET payload = 'null', payload_erased_at = now() WHERE id = %s", second)
    before = database.count("audit")
    with engine.begin() as connection, pytest.raises(StateChanged, match="preview"):
        redrive(connection, where=where, acknowledge=token, by="me", reason="x")
    assert (look(database, second).state, database.count("audit")) == (JobState.FAILED, before)


def test_ids_may_be_acknowledged_too(database: Database, link: Link, engine: sa.Engine) -> None:
    """The token of a preview by ids fits the redrive of the same ids."""
    ids = dead(database, link, 2)
    with engine.begin() as connection:
        token = preview_redrive(connection, ids).token
        with pytest.raises(StateChanged):
            redrive(connection, ids[:1], acknowledge=token, by="me", reason="x")
        assert list(redrive(connection, ids, acknowledge=token, by="me", reason="x").redriven) == sorted(ids)


@pytest.mark.parametrize("terms", [{"include_uncertain": True}, {"deadline": datetime(2100, 1, 1, tzinfo=UTC)}])
def test_a_token_is_of_its_terms(database: Database, link: Link, engine: sa.Engine, terms: dict[str, Any]) -> None:
    """Who has seen that a job on hold is left alone has not agreed to put it back; nor to a deadline of all."""
    (job_id,) = dead(database, link, code="effect_on_hold")
    effect(database, job_id, "uncertain")
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        seen = preview_redrive(connection, where=where)
        assert seen.refusals == {"effect_on_hold": 1}
        with pytest.raises(StateChanged, match="include_uncertain"):
            redrive(connection, where=where, acknowledge=seen.token, by="me", reason="x", **terms)
        seen = preview_redrive(connection, where=where, **terms)
        done = redrive(connection, where=where, acknowledge=seen.token, by="me", reason="x", rate=1, **terms)
    assert (done.total, database.count("redrive_operations")) == (1, 1)


def test_a_discarded_letter_spoils_a_token_of_ids_too(database: Database, link: Link, engine: sa.Engine) -> None:
    """Somebody has closed it since: whoever named it looks again, and may name it again."""
    ids = dead(database, link, 2)
    with engine.begin() as connection:
        token = preview_redrive(connection, ids).token
        discard(connection, ids[:1], by="you", reason="paid by hand")
        with pytest.raises(StateChanged):
            redrive(connection, ids, acknowledge=token, by="me", reason="x")
        assert redrive(connection, ids, by="me", reason="x").total == 2


def test_a_preview_is_acted_on_once(database: Database, link: Link, engine: sa.Engine) -> None:
    """Once more, while the first waits for the relays: refused. So is another one by a filter, which shows why."""
    ids = dead(database, link, 3)
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        token = preview_redrive(connection, where=where).token
        slowly = {"where": where, "rate": 1, "canary": 1, "by": "me", "reason": "x"}
        first = redrive(connection, acknowledge=token, **slowly)
    with engine.begin() as connection:
        with pytest.raises(StateChanged, match="already"):
            redrive(connection, acknowledge=token, **slowly)
        seen = preview_redrive(connection, where=where)
        assert (seen.total, seen.refusals) == (3, {"in_redrive": 3})
        with pytest.raises(RedriveRefused, match="waits in another redrive"):
            redrive(connection, where=where, acknowledge=seen.token, by="me", reason="x")
        assert list(redrive(connection, ids[0], by="me", reason="sooner").redriven) == [ids[0]]
        steer_redrive(connection, first.operation_id, "abort", by="me", reason="x")
        with pytest.raises(StateChanged, match="already"):
            redrive(connection, acknowledge=token, **slowly)
        token = preview_redrive(connection, where=where).token
        assert list(redrive(connection, where=where, acknowledge=token, by="me", reason="x").redriven) == ids[1:]


def test_of_two_who_act_on_one_preview_at_once_one_does(database: Database, link: Link, engine: sa.Engine) -> None:
    """The second waits for the first, and then begins nothing; had the first gone back, it would."""
    dead(database, link, 2)
    where = DeadFilter(kind=Note.kind)
    with engine.begin() as connection:
        token = preview_redrive(connection, where=where).token

    def act() -> UUID | None:
        with database.engine().begin() as mine:
            try:
                return redrive(mine, where=where, acknowledge=token, by="you", reason="x", rate=1).operation_id
            except StateChanged:
                return None

    for ending in ("rollback", "commit"):
        with ThreadPoolExecutor(1) as pool, engine.connect() as connection:
            redrive(connection, where=where, acknowledge=token, by="me", reason="x", rate=1)
            other = pool.submit(act)
            until(lambda: bool(database.rows(WAITING)))
            getattr(connection, ending)()
            begun = other.result(timeout=20)
        assert (begun is None) is (ending == "commit")
        assert database.count("redrive_operations") == 1
        if begun is not None:
            database.rows("DELETE FROM {s}.redrive_operations")
            database.rows("DELETE FROM {s}.redrive_items")
            database.rows("DELETE FROM {s}.redrive_lanes")
