"""Dead letters: kept by the database as jobs fail, listed and counted from their own table, closed by a person."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from outbox import cancel, explain
from outbox.database.link import Link
from outbox.keeping.time import expire_deadlines, recover_leases
from outbox.leases.ending import Failure, complete, fail, retry
from outbox.operating.dead_letters import (
    DeadFilter,
    backlog_unfinished,
    count_dead_letters,
    discard,
    fill_dead_letters,
    list_dead_letters,
    read_dead_letter,
)
from outbox_schemas import NameRefused, Reason
from support.database import Database
from support.jobs import BROKEN, Note, OtherNote, running, submit

pytestmark = pytest.mark.usefixtures("sound")


def failed(database: Database, link: Link, count: int = 1, code: str = "ValueError", **options: Any) -> list[Any]:
    """Return the ids of fresh jobs that have failed, in the order of their submission."""
    mine = running(database, link, count, **options)
    failure = Failure("unknown", code, "it broke", None)
    assert len(fail(link, [(item.lease, failure) for item in mine])) == count
    return [item.lease.job_id for item in mine]


def test_every_way_to_fail_leaves_a_letter(database: Database, link: Link) -> None:
    """A failed attempt, a lease lost for the last time and a passed deadline: the code is the last error's."""
    database.clock.stop()
    (broken,) = failed(database, link)
    (lost,) = [item.lease.job_id for item in running(database, link, max_attempts=1)]
    database.clock.advance(61)
    recover_leases(link)
    (late,) = submit(database, deadline=database.clock.now() + timedelta(seconds=5))
    database.clock.advance(10)
    expire_deadlines(link)
    found = {letter.job_id: letter.code for letter in list_dead_letters(link)}
    assert found == {broken: "ValueError", lost: "lease_expired", late: "deadline_exceeded"}


def test_what_has_not_failed_leaves_none(database: Database, link: Link) -> None:
    """Success, retry and cancellation leave no letter."""
    one, two, three = running(database, link, 3)
    complete(link, [one.lease])
    retry(link, [(two.lease, BROKEN, 5.0)])
    with database.engine().begin() as connection:
        cancel(connection, three.lease.job_id, by="me", reason="x")
    assert list_dead_letters(link) == []


def test_filters_and_order(database: Database, link: Link) -> None:
    """The newest come first; every filter counts by itself and with the others."""
    database.clock.stop()
    ids = []
    for number in range(4):
        ids += failed(database, link, code=f"code_{number % 2}", tenant=f"t{number % 2}")
        database.clock.advance(60)
    others = submit(database, payloads=[OtherNote(key="o")])
    database.rows(
        "UPDATE {s}.jobs SET state = 'failed', finished_at = {s}.clock(), last_error_code = 'x', "
        "failed_because = 'deadline_exceeded', first_error_class = 'deadline', last_error_class = 'deadline' "
        "WHERE id = %s",
        others[0],
    )
    database.rows("DELETE FROM {s}.outbox WHERE job_id = %s", others[0])

    def listed(**chosen: Any) -> list[Any]:
        return [letter.job_id for letter in list_dead_letters(link, DeadFilter(**chosen))]

    assert listed() == [*others, *reversed(ids)]
    assert listed(kind=OtherNote.kind) == listed(queue="others") == listed(code="x") == others
    assert listed(code="code_1") == listed(tenant="t1") == [ids[3], ids[1]]
    assert listed(older_than=timedelta(seconds=150)) == [ids[1], ids[0]]
    assert listed(code="code_1", older_than=timedelta(seconds=150), tenant="t1", kind=Note.kind) == [ids[1]]
    assert len(list_dead_letters(link, limit=2)) == 2
    groups = count_dead_letters(link, ["code", "kind"])
    assert [(group.code, group.kind, group.queue, group.letters) for group in groups] == [
        ("code_0", Note.kind, None, 2), ("code_1", Note.kind, None, 2), ("x", OtherNote.kind, None, 1),
    ]  # fmt: skip
    assert groups[0].newest_at - groups[0].oldest_at == timedelta(seconds=120)
    groups = count_dead_letters(link, ["tenant"], DeadFilter(kind=Note.kind))
    assert [(group.tenant, group.letters) for group in groups] == [("t0", 2), ("t1", 2)]


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"kind": "a b"}, "kind"),
        ({"queue": ""}, "queue"),
        ({"tenant": "\x00"}, "tenant"),
        ({"code": "\x1b[31m"}, "code"),
        ({"older_than": timedelta(seconds=-1)}, "older_than"),
        ({"older_than": 5}, "older_than"),
    ],
)
def test_an_impossible_filter_is_refused(link: Link, chosen: dict[str, Any], field: str) -> None:
    """The error names the field, and nothing is asked."""
    with pytest.raises(NameRefused, match=field):
        list_dead_letters(link, DeadFilter(**chosen))
    with pytest.raises(NameRefused, match="group_by"):
        count_dead_letters(link, ["payload"])


def test_discarding_closes_a_letter_once(database: Database, link: Link, engine: sa.Engine) -> None:
    """It leaves the list and the counts, stays with its job, and is audited with who and why."""
    one, two = failed(database, link, 2)
    with engine.begin() as connection:
        assert discard(connection, [one, uuid4()], by="me", reason="paid by hand") == [one]
        assert discard(connection, [one], by="you", reason="again") == []
    assert [letter.job_id for letter in list_dead_letters(link)] == [two]
    assert [letter.discarded_by for letter in list_dead_letters(link, discarded=True)] == ["me"]
    assert [group.letters for group in count_dead_letters(link, ["code"])] == [1]
    letter = read_dead_letter(link, one)
    assert letter.discard_reason == "paid by hand"
    with engine.begin() as connection:
        found = explain(connection, one)
    assert (found.code, found.since) == (Reason.DISCARDED, letter.discarded_at)
    assert database.rows("SELECT actor, action, subject, reason, detail ->> 'code' FROM {s}.audit") == [
        ("me", "dead.discard", str(one), "paid by hand", "ValueError")
    ]


def test_a_rolled_back_discard_never_was(database: Database, link: Link, engine: sa.Engine) -> None:
    """It belongs to the caller's transaction."""
    ids = failed(database, link)
    with engine.connect() as connection:
        discard(connection, ids, by="me", reason="x")
        connection.rollback()
    assert (len(list_dead_letters(link)), database.count("audit")) == (1, 0)


def test_of_two_who_discard_one_does(database: Database, link: Link) -> None:
    """The second waits for the first and then finds nothing open: one audit row for each letter."""
    ids = failed(database, link, 20)

    def close(_: int) -> int:
        with database.engine(poolclass=sa.NullPool).begin() as connection:
            return len(discard(connection, ids, by="me", reason="x"))

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(close, range(4))) == [0, 0, 0, 20]
    assert database.count("audit") == 20


@pytest.mark.parametrize(
    "ids", [[], ["x"], [None], [uuid4() for _ in range(10_001)]], ids=["none", "text", "null", "many"]
)
def test_bad_ids_are_refused(engine: sa.Engine, ids: list[Any]) -> None:
    """One clear error, and no SQL."""
    with engine.connect() as connection:
        with pytest.raises(NameRefused, match="job_ids"):
            discard(connection, ids, by="me", reason="x")
        with pytest.raises(NameRefused, match="by"):
            discard(connection, [uuid4()], by="", reason="x")
        assert not connection.in_transaction()


def test_a_job_takes_its_letter_with_it(database: Database, link: Link) -> None:
    """Whoever deletes a job deletes its letter."""
    (job_id,) = failed(database, link)
    database.rows("DELETE FROM {s}.jobs WHERE id = %s", job_id)
    database.rows("DELETE FROM {s}.attempts WHERE job_id = %s", job_id)
    assert database.count("dead_letters") == 0


def test_jobs_that_failed_before_get_their_letters(database: Database, link: Link) -> None:
    """Batch by batch, once, without those that have one, and not beside another relay."""
    ids = failed(database, link, 5)
    submit(database, 4)
    database.rows("DELETE FROM {s}.dead_letters")
    database.rows("INSERT INTO {s}.dead_letter_backlog (place) VALUES (%s)", UUID(int=0))
    assert backlog_unfinished(link)
    with database.connect(autocommit=False) as other:
        other.execute(database.sql("SELECT 1 FROM {s}.dead_letter_backlog FOR UPDATE"))
        assert fill_dead_letters(link) == 0
    assert [fill_dead_letters(link, batch=3) for _ in range(5)] == [3, 3, 3, 0, 0]
    assert not backlog_unfinished(link)
    assert sorted(letter.job_id for letter in list_dead_letters(link)) == sorted(ids)


def test_who_fails_a_job_needs_no_right_to_the_letters(database: Database, link: Link) -> None:
    """A consumer with the rights of the release before still ends its jobs."""
    (mine,) = running(database, link)
    role = f"dead_{uuid4().hex[:8]}"
    database.rows(f"CREATE ROLE {role}")
    try:
        database.rows(f"GRANT USAGE ON SCHEMA {{s}} TO {role}")
        database.rows(f"GRANT SELECT, UPDATE, DELETE ON {{s}}.jobs, {{s}}.outbox TO {role}")
        database.rows(f"GRANT SELECT, INSERT ON {{s}}.attempts TO {role}")
        theirs = database.link(session=f"-c role={role}")
        ended = fail(theirs, [(mine.lease, BROKEN)])
        theirs.close()
    finally:
        database.rows(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert len(ended) == len(list_dead_letters(link)) == 1


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plan's nodes."""
    return [tree, *(node for child in tree.get("Plans", []) for node in nodes(child))]


@pytest.mark.slow
def test_no_list_reads_all_letters(database: Database, link: Link) -> None:
    """With a hundred thousand of them, every filter goes by an index, and a count reads no job."""
    database.rows(_MANY)
    database.rows("VACUUM ANALYZE {s}.dead_letters")
    nothing = dict.fromkeys(("kind", "code", "queue", "tenant", "older_than_s"))
    shown = {"discarded": False, "batch": 50}
    by = {"by_code": True, "by_kind": True, "by_queue": False, "by_tenant": False, "batch": 50}
    for statement, parameters in (
        ("list_dead_letters", nothing | shown),
        ("list_dead_letters", nothing | shown | {"tenant": "t7"}),
        ("list_dead_letters", nothing | shown | {"kind": "k3", "code": "c1"}),
        ("list_dead_letters", nothing | shown | {"discarded": True}),
        ("count_dead_letters", nothing | by),
        ("count_dead_letters", nothing | by | {"kind": "k3"}),
    ):
        with database.connect() as connection:
            text = database.statements.for_psycopg(statement)
            (explained,) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", parameters).fetchone() or ({},)
        plan = explained[0]["Plan"]
        walked = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
        assert walked in ([], ["jobs"]) if statement.startswith("list") else "jobs" not in walked, (
            statement,
            parameters,
        )
    database.rows("TRUNCATE {s}.dead_letters")  # they are of no jobs


_MANY = r"""
INSERT INTO {s}.dead_letters (job_id, kind, queue, tenant, code, failed_at)
SELECT gen_random_uuid(), 'k' || n % 5, 'q', 't' || n % 1000, 'c' || n % 10, now() - n * interval '1 s'
FROM generate_series(1, 100000) AS n
"""
