"""Rows that a newer release has written: the older one shows them, and never moves them."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from outbox import cancel, enqueue, explain, get_job
from outbox.cli import root
from outbox.database.link import Link
from outbox.doctor import Limits, examine, mend
from outbox.leases.ending import complete
from outbox.migrations import SchemaTooNew
from outbox.retention.erasing import purge, rules_of
from outbox.settings.retention import RetentionSettings
from outbox_schemas import Reason
from support.database import Database
from support.edits import Edit, write
from support.jobs import Note, release_all, running, submit, take


@pytest.fixture
def snoozed(database: Database) -> UUID:
    """Return a job in a state, with a phase, that only a newer release has."""
    [job_id] = submit(database, payloads=[Note(key="k")])
    database.rows("SET session_replication_role = replica")
    for table, constraint in {"jobs": "jobs_state", "outbox": "outbox_phase"}.items():
        database.rows(f"ALTER TABLE {{s}}.{table} DROP CONSTRAINT {constraint}")
    database.rows("UPDATE {s}.jobs SET state = 'snoozed' WHERE id = %s", job_id)
    database.rows("UPDATE {s}.outbox SET phase = 'asleep' WHERE job_id = %s", job_id)
    database.rows("SET session_replication_role = origin")
    return job_id


def rows(database: Database, job_id: UUID) -> list[Any]:
    """Return all that is on record of a job."""
    query = "SELECT to_jsonb(j), to_jsonb(o) FROM {s}.jobs AS j LEFT JOIN {s}.outbox AS o ON o.job_id = j.id"
    return database.rows(f"{query} WHERE j.id = %s", job_id)


def test_what_only_a_newer_release_knows_is_shown(
    database: Database, snoozed: UUID, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists, views and submissions give its word as it stands, beside the jobs that are understood."""
    submit(database)
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database.url)
    for command in ("jobs list", f"jobs show {snoozed}", f"jobs explain {snoozed}", f"jobs show {snoozed} --tree"):
        assert root.run(command.split()) == 0, command
        assert "snoozed" in capsys.readouterr().out
    assert root.run(["jobs", "list", "--json"]) == 0
    assert {job["state"] for job in json.loads(capsys.readouterr().out)["jobs"]} == {"ready", "snoozed"}
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        view = get_job(connection, snoozed)
        assert view is not None
        assert view.owed is not None
        assert (view.state, view.owed.phase) == ("snoozed", "asleep")
        assert explain(connection, snoozed).code is Reason.STATE_UNKNOWN
        ref = enqueue(connection, Note(key="k"))
        assert (ref.id, ref.created, ref.state) == (snoozed, False, "snoozed")


def test_what_only_a_newer_release_knows_is_not_moved(database: Database, snoozed: UUID, link: Link) -> None:
    """Neither released, claimed, cancelled nor purged; its neighbour is."""
    before = rows(database, snoozed)
    [item] = running(database, link)
    release_all(link)
    assert take(link, [snoozed]) == []
    complete(link, [item.lease])
    with database.engine(poolclass=sa.NullPool).begin() as connection:
        assert not cancel(connection, snoozed, by="ops", reason="r").won
    database.rows("UPDATE {s}.jobs SET finished_at = now() - interval '1 y' WHERE state = 'succeeded'")
    database.clock.advance(86_400)
    assert purge(link, rules_of(RetentionSettings.model_validate({"succeeded": "1h"})), batch=10).purged == 1
    assert rows(database, snoozed) == before


def test_what_waits_as_only_a_newer_release_knows_is_not_superseded(database: Database) -> None:
    """Its place in the hot list looks like that of any other; taken out of it, the job would never end."""
    (old,) = write(database, Edit(key="old"))
    database.rows("SET session_replication_role = replica")
    database.rows("ALTER TABLE {s}.jobs DROP CONSTRAINT jobs_state")
    database.rows("UPDATE {s}.jobs SET state = 'snoozed' WHERE id = %s", old.id)
    database.rows("SET session_replication_role = origin")
    before = rows(database, old.id)
    assert write(database, Edit(key="new"), supersedes=True)[0].superseded == ()
    assert rows(database, old.id) == before


def test_an_older_doctor_mends_nothing_of_a_newer_release(database: Database, snoozed: UUID, link: Link) -> None:
    """What it doesn't know is no corruption to it; and tables of a newer release it doesn't touch at all."""
    before = rows(database, snoozed)
    engine = database.engine(pool_size=1)
    found = {
        disorder.check.code for disorder in examine(engine, schema=database.schema, limits=Limits(old_s=1e6)).disorders
    }
    assert found == {"schema_differs"}
    given = {"code": "x", "actor": "a", "reason": "r", "job_ids": [snoozed]}
    for statement in ("mend_owe_nothing", "mend_outbox_row", "mend_owe", "mend_dead_letters", "mend_clock_went_back"):
        assert link.run(statement, **given) == []
    database.rows("UPDATE {s}.outbox_schema_version SET version_num = '9999'")
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", submit(database)[0])
    with pytest.raises(SchemaTooNew):
        mend(engine, by="ops", reason="r", schema=database.schema)
    assert rows(database, snoozed) == before
    assert database.count("audit WHERE action = 'doctor.mend'") == 0
