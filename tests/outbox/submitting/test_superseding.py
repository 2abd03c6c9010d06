"""A newer job in the place of those of its subject that wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa

from outbox import (
    CancelFilter,
    JobState,
    LogicalKeyConflict,
    NameRefused,
    QueueFull,
    bound_queue,
    cancel_many,
    enqueue,
    enqueue_many,
    explain,
    fan_in,
    redrive,
)
from outbox.database.link import Link
from outbox.doctor import examine
from outbox.leases.ending import complete, retry
from outbox_schemas import Reason
from support.database import Database
from support.doctoring import codes
from support.edits import Edit, states, write
from support.jobs import BROKEN, Note, OtherNote, look, release_all, submit, take
from support.targets import WAYS, Caller, run_with
from support.waiting import until

pytestmark = pytest.mark.usefixtures("sound")

HOSTILE = [
    "a:b",
    "%s :x {schema}",
    "'; DROP TABLE jobs; --",
    "\u00e9",
    "e\u0301",
    "x" * 512,
    " ",
    "\\",
    "[]",
    "\N{FIRE}",
]


class KeyedEdit(Edit):
    """One of a key whose jobs run in order."""

    limit_group: ClassVar[str | None] = "test"
    ordered: ClassVar[bool] = True

    on: str = "a key"

    def limit_key(self) -> str | None:
        """Return the key as given."""
        return self.on


def test_the_newer_job_ends_those_that_wait(database: Database, link: Link) -> None:
    """Owed, released, waiting for a retry, or not due yet: each ends as superseded and never runs; others stay."""
    broken = write(database, Edit(key="broken"))[0]
    release_all(link)
    retry(link, [(take(link, [broken.id])[0].lease, BROKEN, 900)])
    released = write(database, Edit(key="released"))[0]
    release_all(link)
    runs = write(database, Edit(key="runs"))[0]
    release_all(link)
    (running,) = take(link, [runs.id])
    write(database, Edit(key="later"), run_at=datetime.now(UTC) + timedelta(days=1))
    write(database, Edit(key="owed"), Edit(key="other", about="else"), Edit(key="none", about=None), Note(key="plain"))
    write(database, Edit(key="theirs"), tenant="rival")
    (newer,) = write(database, Edit(key="newer"), supersedes=True)
    assert newer.created
    assert len(newer.superseded) == 4
    gone = {key for key, state in states(database).items() if state == "cancelled"}
    assert gone == {"broken", "released", "later", "owed"}
    assert take(link, [released.id]) == []
    view = look(database, broken.id)
    assert view.cancelled_after is not None
    assert (view.cancelled_after.superseded_by, view.cancelled_after.attempts) == (newer.id, 1)
    assert (view.cancel_requested_by, view.cancel_reason) == ("writer", f"superseded by job {newer.id}")
    assert (view.subject, look(database, newer.id).subject) == ("doc", "doc")
    with database.engine().connect() as connection:
        why = explain(connection, broken.id)
    assert (why.code, str(newer.id) in why.text) == (Reason.SUPERSEDED, True)
    assert database.count("audit") == 0  # of what people do
    assert "cancelled_without_reason" not in codes(examine(database.engine(), schema=database.schema))
    with database.engine().begin() as connection:
        redrive(connection, broken.id, by="me", reason="it mattered")
    detail = database.value("SELECT detail FROM {s}.audit WHERE subject = %s", str(broken.id))
    assert (detail["cancelled_by"], detail["superseded_by"]) == ("writer", str(newer.id))
    assert complete(link, [running.lease]) == {runs.id}


def test_another_kind_has_subjects_of_its_own(database: Database) -> None:
    """Kinds don't meet, not even where one's name is the beginning of another's."""

    class Other(OtherNote):
        def subject_key(self) -> str:
            return "doc"

    write(database, Other(key="other"))
    assert write(database, Edit(key="mine"), supersedes=True)[0].superseded == ()


def test_a_subject_is_any_printable_text(database: Database) -> None:
    """Hostile texts are subjects like others, byte by byte: each meets its own job alone."""
    old = write(database, *[Edit(key=f"old {number}", about=text) for number, text in enumerate(HOSTILE)])
    new = [write(database, Edit(key=f"new {text:.9}", about=text), supersedes=True)[0] for text in HOSTILE]
    assert [ref.superseded for ref in new] == [(ref.id,) for ref in old]


def test_a_bad_subject_is_refused_before_anything_is_written(database: Database) -> None:
    """One clear error names it."""
    with database.engine().connect() as connection:
        for subject in ["", "x" * 513, "a\x1fb", "a\x00", "\ud800", 7]:
            with pytest.raises(NameRefused, match=r"^subject_key: "):
                enqueue(connection, Edit.model_construct(key="k", about=subject))
    assert database.count("jobs") == 0


def test_words_that_do_not_fit_are_refused(database: Database) -> None:
    """Each says what is wrong, and nothing is written."""
    with database.engine().connect() as connection:
        for payload, words, message in [
            (Edit(key="k"), {"supersedes": "first"}, "supersedes: must be True, False or one of earliest, latest"),
            (Edit(key="k"), {"supersedes": 1}, "supersedes: must be"),
            (Edit(key="k"), {"replace": "newest"}, "replace: must be None or one of earliest, latest"),
            (Edit(key="k"), {"supersedes": True, "replace": "latest"}, "replace: can't be given with supersedes"),
            (Edit(key="k", about=None), {"supersedes": True}, r"supersedes: needs a subject: subject_key\(\)"),
        ]:
            with pytest.raises(NameRefused, match=message):
                enqueue(connection, payload, **words)  # type: ignore[arg-type]
        many = [Edit(key=str(number)) for number in range(1001)]
        with pytest.raises(NameRefused, match="supersedes: is for 1000 jobs in a call at most, not 1001"):
            enqueue_many(connection, many, supersedes=True)
        with pytest.raises(TypeError, match="take no option 'supersedes'"):
            fan_in(connection, [], Edit(key="k"), supersedes=True)  # type: ignore[call-arg]
    assert database.count("jobs") == 0


def test_a_snapshot_supersedes_and_replaces_nothing(database: Database) -> None:
    """It can't see what has come to wait since, so it is refused; the transaction stays usable."""
    write(database, Edit(key="old"))
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        with database.engine().connect().execution_options(isolation_level=level) as connection:  # type: ignore[arg-type]
            with pytest.raises(NameRefused, match=f"supersedes: needs a transaction at READ COMMITTED, not {level}"):
                enqueue(connection, Edit(key="new"), supersedes=True)
            with pytest.raises(NameRefused, match=f"replace: needs a transaction at READ COMMITTED, not {level}"):
                enqueue(connection, Edit(key="old", body=2), replace="latest")
            enqueue(connection, Edit(key="new"))
            connection.commit()
    assert states(database) == {"old": "ready", "new": "ready"}
    assert database.value("SELECT payload ->> 'body' FROM {s}.jobs WHERE logical_key = 'old'") is None


def test_a_repeat_supersedes_nothing(database: Database) -> None:
    """The first submission's word stands: who sends it again gets its job, however it is by then."""
    (first,) = write(database, Edit(key="a"), supersedes=True)
    (second,) = write(database, Edit(key="b"), supersedes=True)
    (again,) = write(database, Edit(key="a"), supersedes=True)
    assert (again.id, again.created, again.state, again.superseded) == (first.id, False, JobState.CANCELLED, ())
    assert second.superseded == (first.id,)
    assert states(database) == {"a": "cancelled", "b": "ready"}


def test_what_is_rolled_back_has_superseded_nothing(database: Database, link: Link) -> None:
    """All is as before: the older job waits, its hint is good, and no audit tells of it."""
    (old,) = write(database, Edit(key="old"))
    release_all(link)
    with database.engine().connect() as connection:
        nested = connection.begin_nested()
        assert enqueue(connection, Edit(key="new"), supersedes=True).superseded == (old.id,)
        nested.rollback()
        assert enqueue(connection, Edit(key="newer"), supersedes=True).superseded == (old.id,)
        connection.rollback()
    assert (states(database), database.count("audit")) == ({"old": "ready"}, 0)
    assert len(take(link, [old.id])) == 1


def test_a_batch_is_as_its_jobs_one_after_the_other(database: Database) -> None:
    """Of several new ones of a subject the last stays; the others came and went."""
    write(database, Edit(key="old"), Edit(key="old b", about="b"))
    refs = write(database, Edit(key="z"), Edit(key="b", about="b"), Edit(key="y"), Edit(key="x"), supersedes=True)
    assert [ref.created for ref in refs] == [True] * 4
    assert [ref.state for ref in refs] == ["cancelled", "ready", "cancelled", "ready"]
    assert [len(ref.superseded) for ref in refs] == [0, 1, 0, 3]
    assert {key for key, state in states(database).items() if state == "ready"} == {"b", "x"}


def test_a_refused_batch_supersedes_nothing(database: Database) -> None:
    """A conflict of one takes back what the call had done for the others."""
    write(database, Edit(key="old"), Edit(key="z", about="z"))
    with database.engine().connect() as connection:
        with pytest.raises(LogicalKeyConflict):
            enqueue_many(connection, [Edit(key="new"), Edit(key="z", body="other")], supersedes=True)
        connection.commit()
    assert states(database) == {"old": "ready", "z": "ready"}


def test_bounds_hold_for_what_supersedes(database: Database) -> None:
    """A full queue refuses it, and the older job stays."""
    write(database, Edit(key="old"))
    with database.engine().begin() as connection:
        bound_queue(connection, "notes", max_backlog=1, by="me", reason="test")
    database.rows(
        "INSERT INTO {s}.queue_figures (queue, backlog, capped, scheduled, running, counted_at) "
        "VALUES ('notes', 5, false, 0, 0, {s}.clock())"
    )
    with database.engine().begin() as connection, pytest.raises(QueueFull):
        enqueue(connection, Edit(key="new"), supersedes=True)
    assert states(database) == {"old": "ready"}


def test_no_more_end_than_a_call_may_end(database: Database) -> None:
    """A thousand of a subject end by one call; more are refused before anything is written."""
    submit(database, payloads=[Edit(key=f"{number:04}") for number in range(1001)])
    with (
        database.engine().begin() as connection,
        pytest.raises(NameRefused, match="supersedes: would end more than 1000 waiting jobs of one subject"),
    ):
        enqueue(connection, Edit(key="new"), supersedes=True)
    assert database.count("jobs") == 1001
    database.rows("DELETE FROM {s}.outbox WHERE job_id = (SELECT max(job_id::text)::uuid FROM {s}.outbox)")
    database.rows("DELETE FROM {s}.jobs AS j WHERE NOT EXISTS (SELECT FROM {s}.outbox AS o WHERE o.job_id = j.id)")
    assert len(write(database, Edit(key="new"), supersedes=True)[0].superseded) == 1000


def test_a_newer_job_may_take_over_the_time(database: Database) -> None:
    """By True it has its own; by the other words the earlier, or the later, of its own and those that it supersedes."""
    start = datetime.now(UTC).replace(microsecond=0)
    times: list[tuple[Any, int]] = [(True, 2), ("earliest", 1), ("latest", 3)]
    for word, hours in times:
        write(database, Edit(key=f"1 {word}", about="1"), run_at=start + timedelta(hours=1))
        write(database, Edit(key=f"3 {word}", about="1"), run_at=start + timedelta(hours=3))
        edit = Edit(key=f"2 {word}", about="1")
        (newer,) = write(database, edit, supersedes=word, run_at=start + timedelta(hours=2), priority=7)
        view = look(database, newer.id)
        assert view.owed is not None
        assert view.run_at == view.owed.due_at == start + timedelta(hours=hours)
        place = database.value("SELECT order_key FROM {s}.outbox WHERE job_id = %s", newer.id)
        assert place == view.run_at - timedelta(minutes=7)
        assert len(newer.superseded) == 2 + (word != times[0][0])


@pytest.mark.parametrize(("word", "first"), [(True, False), ("latest", False), ("earliest", True)])
def test_the_earliest_takes_over_the_place_in_an_order(database: Database, word: Any, first: bool) -> None:
    """Of an ordered key that both share: before all that has come since. One of another key stays where it came."""
    write(database, KeyedEdit(key="old", on="another"))
    write(database, KeyedEdit(key="0", about="0"))
    write(database, KeyedEdit(key="old too"))
    write(database, KeyedEdit(key="between", about="else"))
    (newer,) = write(database, KeyedEdit(key="newer"), supersedes=word)
    assert len(newer.superseded) == 2
    both = "{s}.jobs AS j JOIN {s}.outbox AS o ON (o.job_id, o.limit_place) = (j.id, j.limit_place)"
    found = [key for (key,) in database.rows(f"SELECT j.logical_key FROM {both} ORDER BY o.limit_place")]
    assert found == (["0", "newer", "between"] if first else ["0", "between", "newer"])


def test_a_job_whose_effect_is_open_goes_on(database: Database, link: Link) -> None:
    """Nobody knows whether it has happened; only its own next attempt finds out, so it is left."""
    (old,) = write(database, Edit(key="old"))
    release_all(link)
    retry(link, [(take(link, [old.id])[0].lease, BROKEN, 0)])
    effect = (
        "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, confirmed_at) VALUES "
    )
    database.rows(effect + "(%s, 'charge', 'uncertain', '', 1, now(), NULL)", old.id)
    assert write(database, Edit(key="new"), supersedes=True)[0].superseded == ()
    database.rows("UPDATE {s}.effects SET state = 'confirmed', confirmed_at = now()")
    (newest,) = write(database, Edit(key="newest"), supersedes=True)
    assert old.id in newest.superseded
    after = look(database, old.id).cancelled_after
    assert after is not None
    assert after.effects == {"confirmed": ("charge",)}


def test_what_runs_is_not_waited_for(database: Database, link: Link) -> None:
    """A worker's own transaction holds its job's row; no submission stands still for it."""
    (old,) = write(database, Edit(key="old"))
    release_all(link)
    take(link, [old.id])
    worker = database.connect(autocommit=False)
    worker.execute(database.sql("SELECT 1 FROM {s}.outbox FOR UPDATE"))
    with database.engine().begin() as connection:
        connection.execute(sa.text("SET LOCAL lock_timeout = '5s'"))
        assert enqueue(connection, Edit(key="new"), supersedes=True).superseded == ()
        assert not enqueue(connection, Edit(key="old"), replace="latest").replaced
        with pytest.raises(LogicalKeyConflict):
            enqueue(connection, Edit(key="old", body=2), replace="latest")


def test_what_was_written_under_a_rows_lock_is_seen(database: Database) -> None:
    """A supersession that has waited for a row looks anew: an effect that was begun meanwhile keeps the job."""
    (old,) = write(database, Edit(key="old"))
    rival = database.connect(autocommit=False)
    rival.execute(database.sql("UPDATE {s}.outbox SET last_error = 'held'"))
    effect = "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at) "
    rival.execute(database.sql(effect + "VALUES (%s, 'charge', 'pending', '', 0, now())"), [old.id])
    with ThreadPoolExecutor(1) as pool:
        newer = pool.submit(write, database, Edit(key="new"), supersedes=True)
        until(lambda: database.count("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'") > 0)
        rival.commit()
        assert newer.result()[0].superseded == ()


def test_a_set_waits_on_or_is_called_off(database: Database) -> None:
    """A job that waits for others can be superseded, and so can one that others wait for: as by a cancel."""
    member = write(database, Edit(key="member"))[0]
    with database.engine().begin() as connection:
        then = fan_in(connection, [member], Edit(key="then", about="sum"))
    assert write(database, Edit(key="again", about="sum"), supersedes="latest")[0].superseded == (then.id,)
    assert write(database, Edit(key="newer"), supersedes=True)[0].superseded == (member.id,)
    assert database.value("SELECT max(run_at) < now() + interval '1 minute' FROM {s}.jobs WHERE state = 'ready'")


def test_a_redriven_job_has_its_subject_again(database: Database) -> None:
    """A person puts it back to work beside the newer one; the next one supersedes both."""
    (old,) = write(database, Edit(key="old"))
    (newer,) = write(database, Edit(key="newer"), supersedes=True)
    with database.engine().begin() as connection:
        redrive(connection, old.id, by="ops", reason="needed after all")
    assert look(database, old.id).cancelled_after is None
    assert states(database) == {"old": "ready", "newer": "ready"}
    assert set(write(database, Edit(key="newest"), supersedes=True)[0].superseded) == {old.id, newer.id}


def test_bulk_cancel_and_supersession_leave_each_other_alone(database: Database) -> None:
    """What the one has ended, the other does not end again."""
    write(database, Edit(key="old"))
    write(database, Edit(key="newer"), supersedes=True)
    report = cancel_many(database.engine(), CancelFilter(kind="test.note"), by="me", reason="all", expect=5)
    assert report.cancelled == 1
    assert write(database, Edit(key="newest"), supersedes=True)[0].superseded == ()


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_every_caller_can(database: Database, way: tuple[str, str]) -> None:
    """Sessions, connections and their async twins, on each driver: superseded, taken over and replaced."""

    async def body(caller: Caller) -> None:
        old = await caller.enqueue(Edit(key="old"), run_at=datetime(2999, 1, 1, tzinfo=UTC))
        new = await caller.enqueue(Edit(key="new"), supersedes="latest")
        assert new.superseded == (old.id,)
        changed = await caller.enqueue(Edit(key="new", body=2), replace="earliest")
        assert (changed.id, changed.created, changed.replaced) == (new.id, False, True)
        await caller.commit()

    run_with(database, way, body)
    assert states(database) == {"old": "cancelled", "new": "ready"}
    assert database.rows("SELECT payload ->> 'body', run_at < now() FROM {s}.jobs WHERE state = 'ready'") == [
        ("2", True)
    ]


def test_jobs_without_a_subject_have_no_part_in_the_index(database: Database) -> None:
    """They are written as before, and the index of subjects stays empty."""
    submit(database, 100)
    write(database, Note(key="one"))
    assert database.value("SELECT count(*) FROM {s}.outbox WHERE subject IS NOT NULL") == 0
    assert database.value("SELECT pg_relation_size('{s}.outbox_subject')") == 8192


def test_the_turns_leave_nothing(database: Database) -> None:
    """Nobody ever sees a row of the turns."""
    with database.engine().begin() as connection:
        for number in range(5):
            enqueue(connection, Edit(key=str(number), about=str(number % 2)), supersedes=True)
        mine = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
        assert connection.scalar(sa.text(mine)) == 0
    assert database.count("subject_turns") == 0
