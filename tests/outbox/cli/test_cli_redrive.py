"""`outbox dead preview`, `redrive` and `operations` against real dead letters."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa

from outbox import cancel, enqueue, fan_in
from outbox.leases.ending import Failure, fail
from support.database import Database
from support.jobs import Note, look, running

WHO = ("--by", "me", "--reason", "mended")


def dead(database: Database, count: int = 1, **options: Any) -> list[UUID]:
    """Return the ids of fresh jobs that have failed."""
    link = database.link()
    mine = running(database, link, count, **options)
    fail(link, [(item.lease, Failure("terminal", "broken", "m", None)) for item in mine])
    return [item.lease.job_id for item in mine]


def token(run: Any, *choice: object) -> str:
    """Return the token of a preview."""
    found: str = json.loads(run("dead", "preview", *choice, "--json")[1])["token"]
    return found


def test_preview_shows_and_changes_nothing(run: Any, database: Database) -> None:
    """The count, the groups, the sample and what to add to do it."""
    (job,) = dead(database)
    code, shown, _ = run("dead", "preview", "--code", "broken")
    assert code == 0
    for part in ("jobs:        1", str(job), "test.note", "nothing was changed", "--acknowledge"):
        assert part in shown, part
    assert database.count("audit") + database.count("redrive_operations") == 0


def test_a_preview_ends_with_the_command_that_does_it(run: Any, database: Database) -> None:
    """Typed as it is printed, with the same choice and terms, it puts the jobs back; where none can be, it says so."""
    jobs = dead(database, 2)
    terms = ("--include-uncertain", "--deadline", "2900-01-01T00:00:00Z")
    for choice in ((jobs[0],), ("--code", "broken", "--tenant", "default")):
        line = run("dead", "preview", *choice, *terms)[1].splitlines()[-1]
        words = shlex.split(line.replace(" WHO", " ann").replace(" WHY", " mended"))
        assert words[:3] == ["outbox", "dead", "redrive"]
        code, shown, errors = run(*words[1:])
        assert (code, errors) == (0, ""), line
        assert "is ready again" in shown
    refused = run("dead", "preview", *jobs)[1]
    assert "a redrive would put nothing back: they would all be refused" in refused
    assert "--acknowledge" not in refused
    assert "no failed or cancelled job is chosen" in run("dead", "preview", "--older-than", "90m")[1]


def test_a_preview_tells_of_a_set_that_is_not_complete(run: Any, database: Database, engine: sa.Engine) -> None:
    """A cancelled job that was to wait for others would start without them: that is said, with how many are left."""
    (failed,) = dead(database)
    with engine.begin() as connection:
        other = enqueue(connection, Note(key="other")).id
        job = fan_in(connection, [failed, other], Note(key="then")).id
        cancel(connection, job, by="me", reason="x")
    shown = run("dead", "preview", job)[1]
    assert "sets:        1 not complete" in shown
    assert "2 (1 stopped)" in shown
    found = json.loads(run("dead", "preview", job, "--json")[1])
    assert (found["sets_unmet"], found["sample"][0]["set_left"], found["sample"][0]["set_stopped"]) == (1, 2, 1)
    assert "sets:" not in run("dead", "preview", failed)[1]


def test_a_module_that_cannot_be_imported_says_what_to_do(run: Any) -> None:
    """As `outbox consume` does, before a server is asked for."""
    code, _, errors = run("dead", "redrive", uuid4(), "--acknowledge", "x", "--module", "no_such_module", *WHO)
    assert code == 2
    assert "can't import 'no_such_module'" in errors
    assert "run where it is importable, or set PYTHONPATH" in errors


def test_a_module_without_a_payload_class_is_refused(run: Any) -> None:
    """A patch would be checked by nobody, though somebody has said by what."""
    code, _, errors = run("dead", "redrive", uuid4(), "--acknowledge", "x", "--module", "json", *WHO)
    assert (code, "module 'json' has no payload class" in errors) == (2, True)


def test_a_redrive_of_what_nobody_looked_at_says_where_to_look(run: Any) -> None:
    """The token comes from the preview, and the error says so."""
    code, _, errors = run("dead", "redrive", uuid4(), *WHO)
    assert (code, "outbox dead preview" in errors) == (2, True)


def test_redrive_needs_a_choice_an_acknowledgement_and_who(run: Any, database: Database) -> None:
    """Each of them is asked for before a server is; nothing is changed."""
    (job,) = dead(database)
    seen = token(run, job)
    for missing in (
        ("redrive", job, *WHO),
        ("redrive", job, "--acknowledge", seen),
        ("redrive", "--acknowledge", seen, *WHO),
        ("redrive", job, "--code", "broken", "--acknowledge", seen, *WHO),
        ("redrive", job, "--acknowledge", "sure", *WHO),
        ("redrive", job, "--acknowledge", seen, "--deadline", "2030-01-01T00:00", *WHO),
        ("redrive", job, "--acknowledge", seen, "--rate", "0", *WHO),
        ("preview",),
    ):
        assert run("dead", *missing)[0] == 2, missing
    assert look(database, job).state == "failed"


def test_a_job_is_redriven_once(run: Any, database: Database) -> None:
    """The second time the token fits no more, and the exit code and the error say so."""
    (job,) = dead(database)
    seen = token(run, job)
    code, shown, _ = run("dead", "redrive", job, "--acknowledge", seen, *WHO)
    assert (code, f"{job} is ready again" in shown) == (0, True)
    code, _, errors = run("dead", "redrive", job, "--acknowledge", seen, *WHO, "--json")
    assert (code, json.loads(errors)["error"]["code"]) == (1, "state_changed")
    assert json.loads(run("dead", "redrive", uuid4(), "--acknowledge", seen, *WHO, "--json")[2])["error"]["code"] == (
        "job_not_found"
    )


def test_a_deadline_that_has_passed_is_an_error_of_usage(run: Any, database: Database) -> None:
    """Of the preview and of the redrive; the message names it, and nothing is written."""
    (job,) = dead(database)
    late = ("--deadline", "2020-01-01T00:00:00Z")
    for command in (("preview", job, *late), ("redrive", job, *late, "--acknowledge", token(run, job), *WHO)):
        code, _, errors = run("dead", *command, "--json")
        assert (code, json.loads(errors)["error"]["code"]) == (2, "name_refused"), errors
        assert json.loads(errors)["error"]["message"].startswith("deadline: has passed")
    assert (look(database, job).state, database.count("redrive_operations")) == ("failed", 0)


def test_some_may_be_refused(run: Any, database: Database) -> None:
    """The others are put back; the reasons are told and the exit code is 1."""
    (job,) = dead(database)
    (waiting,) = [item.lease.job_id for item in running(database, database.link())]
    code, shown, _ = run("dead", "redrive", job, waiting, "--acknowledge", token(run, job, waiting), *WHO, "--json")
    answer = json.loads(shown)
    assert (code, answer["redriven"], answer["refused"]) == (1, [str(job)], {str(waiting): "not_ended"})


def test_a_patch_comes_from_a_file(run: Any, database: Database, tmp_path: Path) -> None:
    """Arguments are visible to all, so no payload stands in one."""
    (job,) = dead(database, payloads=[Note(key="k", body=1)])
    file = tmp_path / "patch.json"
    file.write_text("[1]")
    seen = token(run, job)
    assert run("dead", "redrive", job, "--acknowledge", seen, "--patch-file", file, *WHO)[0] == 2
    file.write_text('{"body": 2}')
    assert run("dead", "redrive", job, "--acknowledge", seen, "--patch-file", file, *WHO)[0] == 0
    assert database.value("SELECT payload ->> 'body' FROM {s}.jobs") == "2"


def test_operations_are_listed_shown_and_steered(run: Any, database: Database, engine: sa.Engine) -> None:
    """A redrive with canaries is left to the relays; a person pauses, resumes and aborts it."""
    dead(database, 3)
    seen = token(run, "--kind", "test.note")
    answer = run("dead", "redrive", "--kind", "test.note", "--acknowledge", seen, "--canary", "1", *WHO, "--json")[1]
    operation = json.loads(answer)["operation_id"]
    (listed,) = json.loads(run("dead", "operations", "list", "--json")[1])["operations"]
    assert (listed["id"], listed["state"], listed["total"], listed["chosen"]) == (
        operation,
        "running",
        3,
        {"kind": "test.note"},
    )
    shown = run("dead", "operations", "show", operation)[1]
    assert "by me" not in shown
    assert "me: mended" in shown
    assert "3: 0 redriven" in shown
    for action, state in (("pause", "paused"), ("resume", "running"), ("abort", "aborted")):
        assert run("dead", "operations", action, operation)[0] == 2
        code, said, _ = run("dead", "operations", action, operation, *WHO)
        assert (code, said.strip()) == (0, f"redrive {operation} is {state}")
    assert run("dead", "operations", "resume", operation, *WHO)[0] == 1
    assert run("dead", "operations", "show", uuid4())[0] == 1
    assert "aborted" in run("dead", "operations", "list")[1]
