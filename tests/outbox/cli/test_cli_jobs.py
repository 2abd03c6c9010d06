"""`outbox jobs` and `outbox queues` against real jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine

from outbox.joins.joining import fan_in
from outbox.leases.identity import worker_identity
from outbox.leases.leasing import Ability
from outbox.leases.presence import Presence, Role
from outbox.operating.cancelling import cancel
from outbox.submitting.writer import enqueue
from outbox_schemas import Payload
from support.database import Database


class Probe(Payload):
    """A payload whose text must never be shown."""

    kind: ClassVar[str] = "probe"
    version: ClassVar[int] = 1
    key: str
    note: str = "canary-payload"

    def logical_key(self) -> str:
        """Return the key."""
        return self.key


class About(Probe):
    """A payload that is about something."""

    def subject_key(self) -> str:
        """Return the same for all."""
        return "this"


@pytest.fixture
def canaries() -> tuple[str, ...]:
    """Return what stands in the jobs of these tests."""
    return ("canary-payload",)


def submit(engine: Engine, key: str, **options: Any) -> UUID:
    """Submit one job and return its id."""
    with engine.begin() as connection:
        return enqueue(connection, Probe(key=key), **options).id


def test_list_filters_and_limits(run: Any, engine: Engine) -> None:
    """The newest come first, every filter counts, and the limit holds."""
    ids = [submit(engine, f"k{number}", tenant="a" if number % 2 else "b") for number in range(5)]
    code, shown, _ = run("jobs", "list", "--json")
    found = json.loads(shown)["jobs"]
    assert code == 0
    assert [job["id"] for job in found] == [str(item) for item in reversed(ids)]
    assert found[0]["owed"]["phase"] == "owed"
    assert len(json.loads(run("jobs", "list", "--json", "--limit", "2")[1])["jobs"]) == 2
    assert len(json.loads(run("jobs", "list", "--json", "--tenant", "a")[1])["jobs"]) == 2
    for nothing in (["--state", "failed"], ["--queue", "other"], ["--kind", "other"]):
        assert json.loads(run("jobs", "list", "--json", *nothing)[1])["jobs"] == []
    code, shown, _ = run("jobs", "list", "--state", "ready")
    assert shown.count("\n") == 6
    assert shown.startswith("ID ")


@pytest.mark.parametrize("arguments", [["--state", "odd"], ["--limit", "0"], ["--limit", "x"], ["--subject", ""]])
def test_list_refuses_nonsense(run: Any, arguments: list[str]) -> None:
    """A wrong filter is a usage error."""
    assert run("jobs", "list", *arguments)[0] == 2


def test_show_counts_the_attempts_of_each_budget(run: Any, engine: Engine, database: Database) -> None:
    """What was charged to the budget before a redrive is told apart from what the last one has used up."""
    job_id = submit(engine, "k", max_attempts=5)
    for count, uncharged, before, text in (
        (3, 1, 0, "3 of 5, 1 of them uncharged"),
        (2, 1, 1, "1 of 5 since its last redrive; 1 before it"),
        (4, 2, 1, "3 of 5 since its last redrive, 1 of them uncharged; 1 before it"),
    ):
        database.rows("SET session_replication_role = replica")  # no such moves are legal
        change = "UPDATE {s}.jobs SET attempt_count = %s, uncharged_attempts = %s, budget_start = %s"
        database.rows(change, count, uncharged, before)
        assert f"attempts:    {text}\n" in run("jobs", "show", str(job_id))[1]


def test_show_tells_what_a_job_waits_for(run: Any, engine: Engine) -> None:
    """A job is shown with its state and the reason why it doesn't run yet."""
    soon = submit(engine, "now")
    later = submit(engine, "later", run_at=datetime.now(UTC) + timedelta(hours=2))
    code, shown, _ = run("jobs", "show", str(soon))
    assert code == 0
    assert "a consumer that can run it: none was seen lately" in shown
    code, shown, _ = run("jobs", "show", str(later), "--json")
    answer = json.loads(shown)
    assert "due in 1 h 59 min" in answer["waits_for"] or "due in 2 h" in answer["waits_for"]
    assert (answer["job"]["id"], answer["job"]["state"], answer["attempts"]) == (str(later), "ready", [])


def test_show_tells_what_a_job_is_about_and_what_came_in_its_place(run: Any, engine: Engine) -> None:
    """The subject, and the newer job's id: for people and for programs."""
    with engine.begin() as connection:
        old = enqueue(connection, About(key="old"))
        new = enqueue(connection, About(key="new"), supersedes=True)
    assert "about:       this" in run("jobs", "show", str(new.id))[1]
    shown = run("jobs", "show", str(old.id))[1]
    assert f"cancelled:   by writer: superseded by job {new.id}" in shown
    job = json.loads(run("jobs", "show", str(old.id), "--json")[1])["job"]
    assert (job["subject"], job["cancelled_after"]["superseded_by"]) == ("this", str(new.id))


def test_explain_tells_why_and_what_unblocks(run: Any, engine: Engine) -> None:
    """People get a sentence and what ends it, programs a code; an unknown job has exit code 1."""
    later = submit(engine, "later", run_at=datetime(2990, 1, 1, tzinfo=UTC))
    code, shown, _ = run("jobs", "explain", str(later))
    assert code == 0
    assert "its time: ready, due in" in shown
    assert "until:        2990-01-01 00:00:00Z" in shown
    assert "unblocked by: time" in shown
    answer = json.loads(run("jobs", "explain", str(later), "--json")[1])
    assert (answer["code"], answer["until"], answer["also"]) == ("not_due", "2990-01-01T00:00:00Z", [])
    assert json.loads(run("jobs", "show", str(later), "--json")[1])["explanation"]["code"] == "not_due"
    assert run("jobs", "explain", str(uuid4()))[0] == 1


def test_a_set_names_who_keeps_it_waiting(run: Any, engine: Engine) -> None:
    """The member that a person must see to is named, what is left is listed and counted, for people and programs."""
    with engine.begin() as connection:
        parts = [enqueue(connection, Probe(key=f"part-{number}")) for number in range(2)]
        then = fan_in(connection, parts, Probe(key="then"))
        cancel(connection, parts[0].id, by="me", reason="x")
    for command in ("show", "explain"):
        code, shown, _ = run("jobs", command, str(then.id))
        assert code == 0
        assert f"(probe part-0 {parts[0].id}: cancelled)" in shown
        assert "it starts when 2 jobs have succeeded; 2 left, 1 of them stopped:" in shown
        assert f"  ! probe part-0: cancelled  {parts[0].id}\n  - probe part-1: ready  {parts[1].id}" in shown
    answer = json.loads(run("jobs", "explain", str(then.id), "--json")[1])
    assert (answer["code"], answer["awaited"]["left"], answer["awaited"]["stopped"]) == ("set_unmet", 2, 1)
    assert [job["job_id"] for job in answer["awaited"]["shown"]] == [str(part.id) for part in parts]
    assert "waits until 2 jobs have succeeded (2 left)" in run("jobs", "show", "--tree", str(then.id))[1]


def test_who_works_here(run: Any, database: Any) -> None:
    """Consumers and relays are listed with what they run; those not seen for a minute only if asked for."""
    link = database.link()
    Presence(Role.RELAY, worker_identity()).tell(link)
    ability = Ability("probe", 2, 9, 1, "h")
    Presence(Role.CONSUMER, worker_identity(), queues=["a", "b"], abilities=[ability]).tell(link)
    shown = run("consumers")[1].splitlines()
    assert len(shown) == 3
    assert "a,b" in shown[1]
    assert "probe 2" in shown[1]
    assert [line.split()[2] for line in shown[1:]] == ["yes", "yes"]
    database.rows("UPDATE {s}.processes SET seen_at = seen_at - interval '27 s' WHERE role = 'consumer'")
    assert "quiet for 2" in run("consumers")[1].splitlines()[1]
    assert 27 <= json.loads(run("consumers", "--json")[1])["consumers"][0]["quiet_s"] < 60
    database.rows("UPDATE {s}.processes SET seen_at = seen_at - interval '2 min' WHERE role = 'consumer'")
    answer = json.loads(run("consumers", "--json")[1])
    assert (answer["consumers"], len(answer["relays"])) == ([], 1)
    assert json.loads(run("consumers", "--json", "--all")[1])["consumers"][0]["live"] is False


def test_show_of_an_unknown_job(run: Any) -> None:
    """An unknown id has exit code 1 and a code for machines; a malformed one is a usage error."""
    unknown = str(uuid4())
    code, shown, errors = run("jobs", "show", unknown, "--json")
    assert (code, shown) == (1, "")
    assert json.loads(errors)["error"] == {"code": "job_not_found", "message": f"no job has the id {unknown}"}
    assert run("jobs", "show", "not-an-id")[0] == 2


def test_cancel_ends_a_waiting_job_once(run: Any, engine: Engine) -> None:
    """Who and why are kept, and a second cancel changes nothing."""
    job = str(submit(engine, "k"))
    code, shown, _ = run("jobs", "cancel", job, "--by", "ops", "--reason", "wrong month")
    assert code == 0
    assert "is cancelled (by ops" in shown
    assert "; by then: nothing had started" in shown
    code, shown, _ = run("jobs", "cancel", job, "--by", "other", "--reason", "again", "--json")
    answer = json.loads(shown)
    assert (code, answer["cancelled"], answer["job"]["cancel_requested_by"]) == (0, True, "ops")
    shown = run("jobs", "show", job)[1]
    assert "cancelled:   by ops: wrong month" in shown
    assert "by then:     nothing had started" in shown
    assert "nothing: it was cancelled by ops" in shown


def test_cancel_of_what_has_ended_otherwise(run: Any, engine: Engine, database: Any) -> None:
    """A job that has succeeded stays so, and the exit code says that it isn't cancelled."""
    job = str(submit(engine, "k"))
    with database.connect() as connection:
        connection.execute(f"DELETE FROM {database.schema}.outbox")
        code, shown, _ = run("jobs", "cancel", job, "--by", "ops", "--reason", "a row is lost")
        assert (code, shown.strip()) == (1, f"{job} is ready and can't be cancelled: see `outbox jobs explain {job}`")
        connection.execute("SET session_replication_role = replica")  # no such move is legal
        connection.execute(
            f"UPDATE {database.schema}.jobs SET state = 'succeeded', finished_at = now(), attempt_count = 1"
        )
    code, shown, _ = run("jobs", "cancel", job, "--by", "ops", "--reason", "late")
    assert code == 1
    assert "had ended already: succeeded" in shown


@pytest.mark.parametrize("span", ["999999999d", "999999999h", "20000d", "\u0669s"])
def test_cancel_refuses_an_age_that_no_job_has(run: Any, span: str) -> None:
    """A matter of usage, not a defect: there is no such instant."""
    code, _, complaint = run("jobs", "cancel", "--older-than", span, "--preview")
    assert (code, "older-than" in complaint) == (2, True)


def test_cancel_needs_who_and_why(run: Any, engine: Engine) -> None:
    """Without a name and a reason nothing is cancelled; an unknown job has exit code 1."""
    job = str(submit(engine, "k"))
    assert run("jobs", "cancel", job)[0] == 2
    assert run("jobs", "cancel", job, "--by", "", "--reason", "x")[0] == 2
    assert run("jobs", "cancel", job, "--by", "a\x1bb", "--reason", "x")[0] == 2
    assert run("jobs", "cancel", str(uuid4()), "--by", "ops", "--reason", "x")[0] == 1
    assert "ready" in run("jobs", "show", job)[1]


def test_queues_count_what_waits(run: Any, engine: Engine) -> None:
    """Scheduled and due jobs are counted apart, and the oldest due one has an age."""
    submit(engine, "a")
    submit(engine, "b", run_at=datetime.now(UTC) + timedelta(hours=1))
    (queue,) = json.loads(run("queues", "--json")[1])["queues"]
    counts = {name: queue[name] for name in ("scheduled", "due", "released", "running")}
    assert (queue["queue"], counts) == ("default", {"scheduled": 1, "due": 1, "released": 0, "running": 0})
    assert queue["oldest_due_s"] >= 0
    shown = run("queues")[1].splitlines()
    assert shown[0].split() == [
        "QUEUE",
        "READY",
        "SCHEDULED",
        "ASIDE",
        "PUT",
        "OFF",
        "DUE",
        "RELEASED",
        "RUNNING",
        "OLDEST",
        "DUE",
        "IN/S",
        "OUT/S",
        "DRAINS",
        "IN",
        "RUNWAY",
        "PAUSED",
    ]
    assert shown[1].split()[:8] == ["default", "1", "1", "0", "0", "1", "0", "0"]


def test_hostile_names_are_harmless(run: Any, engine: Engine, database: Any) -> None:
    """What a row holds can't drive the terminal of whoever lists it."""
    job = str(submit(engine, "k"))
    with database.connect() as connection:
        connection.execute(
            f"UPDATE {database.schema}.jobs SET first_error_class = 'x', first_error_code = 'c', "
            "last_error_class = 'x', last_error_code = 'c', first_error_message = %s, last_error_message = %s",
            ("\x1b]0;owned\x07\u202e", "postgresql://u:hunter2secret@h/db"),
        )
    shown = run("jobs", "show", job)[1] + run("jobs", "list")[1]
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "hunter2secret" not in shown


def test_a_job_that_waits_for_others_has_no_time(run: Any, engine: Engine) -> None:
    """Its stand-in for a time is shown nowhere: lists say what it waits for, and JSON has null."""
    with engine.begin() as connection:
        member = enqueue(connection, Probe(key="first"))
        waiting = fan_in(connection, [member.id], Probe(key="then")).id
    assert "waits for jobs" in run("jobs", "list")[1]
    shown = run("jobs", "show", str(waiting))[1]
    assert "run at:      waits for jobs" in shown
    found = json.loads(run("jobs", "show", str(waiting), "--json")[1])["job"]
    assert (found["run_at"], found["owed"]["due_at"]) == (None, None)
    listed = json.loads(run("jobs", "list", "--json")[1])["jobs"]
    assert [job["run_at"] is None for job in listed] == [True, False]
    with engine.begin() as connection:
        assert cancel(connection, waiting, by="me", reason="x").run_at is None
    assert "waits for jobs" not in run("jobs", "list")[1]
