"""Names of which nothing is known: what is asked for is done, with a warning that says what may have been meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox.leases.identity import worker_identity
from outbox.leases.leasing import Ability
from outbox.leases.presence import Presence, Role
from outbox.reading.known_names import NameOf, close_to, unknown_name
from support.database import Database
from support.jobs import Note, submit

WHO = ("--by", "ada", "--reason", "the partner asked for it")
QUEUE = "warning: no job that waits or runs, no consumer and no row of queue note is known; did you mean 'notes'?\n"
TENANT = "warning: no job and no row of tenant Acme is known; did you mean 'acme'?\n"
KIND = "warning: no job, handler or row of kind test.not is known; did you mean 'test.note'?\n"


@pytest.mark.parametrize(
    ("arguments", "warned", "names"),
    [
        (["set", "note", "--runway", "5"], QUEUE, ["note"]),
        (["set-tenant", "note", "Acme", "--weight", "2"], QUEUE + TENANT, ["note", "Acme"]),
        (["bound", "note", "--tenant", "Acme", "--max-backlog", "9"], QUEUE + TENANT, ["note", "Acme"]),
        (["pause", "note"], QUEUE, ["note"]),
        (["pause", "--tenant", "Acme"], TENANT, ["Acme"]),
        (["pause", "--kind", "test.not"], KIND, ["test.not"]),
        (["set", "notes", "--runway", "5"], "", []),
        (["set-tenant", "notes", "acme", "--weight", "2"], "", []),
        (["bound", "notes", "--tenant", "acme", "--max-backlog", "9"], "", []),
        (["pause", "--kind", "test.note"], "", []),
        (["pause", "--all"], "", []),
    ],
)
def test_what_nobody_knows_is_warned_of_and_done(
    run: Any, database: Database, arguments: list[str], warned: str, names: list[str]
) -> None:
    """On stderr, and as JSON beside the fields of what was done; a second time there is a row of that name."""
    submit(database, payloads=[Note(key="a")], tenant="acme")
    code, shown, error = run("queues", *arguments, *WHO, "--json")
    assert (code, error) == (0, warned)
    assert [one["name"] for one in json.loads(shown)["unknown_names"]] == names
    assert run("queues", *arguments, *WHO)[2] == ""


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (["unset", "note"], QUEUE),
        (["unset-tenant", "note", "Acme"], QUEUE + TENANT),
        (["unbound", "note", "--tenant", "Acme"], QUEUE + TENANT),
        (["resume", "note"], QUEUE),
        (["resume", "--kind", "test.not"], KIND),
        (["resume", "--tenant", "Acme"], TENANT),
    ],
)
def test_what_is_taken_away_in_vain_is_warned_of(
    run: Any, database: Database, arguments: list[str], warned: str
) -> None:
    """With a slip in its name a limit, a bound or a pause would go on unseen."""
    submit(database, payloads=[Note(key="a")], tenant="acme")
    code, _, error = run("queues", *arguments, *WHO)
    assert (code, error) == (0, warned)


def test_whoever_works_for_a_queue_knows_it(run: Any, database: Database) -> None:
    """A consumer's queue and kinds are known before their first job, and where nothing is alike nothing is guessed."""
    link = database.link("test")
    abilities = [Ability("mail.send", 1, 60.0, 3, "h")]
    Presence(Role.CONSUMER, worker_identity(), queues=["mail"], abilities=abilities).tell(link)
    link.close()
    assert run("queues", "set", "mail", "--runway", "5", *WHO)[2] == ""
    assert run("queues", "pause", "--kind", "mail.send", *WHO)[2] == ""
    assert run("queues", "set", "zzz", "--runway", "5", *WHO)[2].endswith("of queue zzz is known\n")


def test_among_too_many_names_nobody_is_warned() -> None:
    """A kind that is not among those of the first tenants may be another one's."""

    class Row:
        name = "mail"
        cut = True

    assert unknown_name(lambda *_: [Row()], NameOf.KIND, "mial") is None
    Row.cut = False
    assert unknown_name(lambda *_: [Row()], NameOf.KIND, "mial") is not None


def test_likeness() -> None:
    """Slips are found, other words are not; three at most are told."""
    assert close_to("MIAL", ["mail", "reports"]) == ("mail",)
    assert close_to("exports", ["mail", "reports", "export"])[0] == "export"
    assert close_to("x" * 5000, ["mail"]) == ()
    assert len(close_to("mail1", [f"mail{number}" for number in range(2, 9)])) == 3
