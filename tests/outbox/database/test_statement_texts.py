"""The statements themselves: their headers, their qualification, and their text under hostile schema names."""

from __future__ import annotations

import re
from importlib.resources import files

import psycopg
import pytest
import sqlalchemy as sa

from outbox import enqueue, enqueue_many, find_job, get_job
from outbox.database.statements import Statements, statements_for
from outbox.errors import SettingsError
from outbox.leases.ending import complete
from outbox.migrations import upgrade_database
from outbox.reading.queues import list_queues
from outbox.releasing.relaying import due_queues
from support.database import Database
from support.invariants import check_invariants
from support.jobs import Note, notes, release_all, take


def read_all(folder: str) -> dict[str, str]:
    """Return the files of a folder of the package by their names."""
    return {
        file.name.removesuffix(".sql"): file.read_text("utf-8") for file in files("outbox").joinpath(folder).iterdir()
    }


FILES = read_all("sql")
PARTS = read_all("sql_parts")
PLAIN = Statements("elsewhere")
# What tells a decision that has a part of its own, and the statements that decide something else by the same words.
TELLING = {
    r"p\.scope = '\w+'": set(),
    r"CASE p\.scope": set(),
    r"\bpower\(2": {"recover_hints", "refuse"},
    r"CAST\(:kinds AS text\[\]\) IS NULL": set(),
    r"n\.clear\b": set(),
    r":overdue_s\b": set(),
    r"THEN '(?:payload_erased|outbox_row|set_unmet|in_redrive)'": set(),
    r"\d{6,} hours": set(),
    r"\b6900-": set(),
}
TABLES = [
    "jobs", "outbox", "attempts", "effects", "checkpoints", "inbox", "schedules", "queues", "tenants", "audit",
    "joins", "join_members", "processes", "dead_letters", "dead_letter_backlog", "refusals", "walks",
    "redrive_operations", "redrive_items", "redrive_lanes", "pauses", "queue_limits", "tenant_limits", "subject_turns",
]  # fmt: skip
HOSTILE = [
    'weird "name" %s $outbox$ : é',
    ":job_id",
    "{schema}",
    "a.b",
    "%(rows)s",
    "back\\slash",
    "a\\:b::c",
    "'; --",
    "UPPER",
    "select",
]

# What can't be written without values.
NEEDY = {
    "save_checkpoint",
    "announce",
    "write_audit",
    "begin_rotation",
    "open_join",
    "add_schedule",
    "pause",
    "keep_figures",
    "hold_gauges",
    "open_queue",
    "set_tenant_limits",
    "bound_queue",
}

every_file = pytest.mark.parametrize("name", FILES)


def without_comments(text: str) -> str:
    """Return a file's text without its comment lines."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def named_in(text: str) -> set[str]:
    """Return the parts that a text names."""
    return set(re.findall(r"\{([a-z_]+)\}", without_comments(text))) - {"schema"}


@every_file
@pytest.mark.parametrize("field", ["Purpose", "Transition", "Parameters", "Locks", "Index"])
def test_every_statement_says_what_it_is(name: str, field: str) -> None:
    """Purpose, transition, parameters, locks and index stand in each header, once."""
    header = "\n".join(line for line in FILES[name].splitlines() if line.startswith("--"))
    assert len(re.findall(rf"\b{field}: \S", header)) == 1


@every_file
def test_the_header_names_every_parameter(name: str) -> None:
    """Each parameter of the text is named in the header."""
    declared = re.search(r"^-- Parameters: (.*(?:\n--   .*)*)", FILES[name], re.MULTILINE)
    assert declared is not None
    used = set(re.findall(r"%\((\w+)\)s", PLAIN.for_psycopg(name)))
    assert used <= set(re.findall(r"\w+", declared[1]))
    assert used or declared[1] == "none"


def test_every_part_says_what_it_decides_and_is_shared() -> None:
    """Purpose, needs and parameters stand in its header, and at least two texts name it; none names another."""
    for name, text in PARTS.items():
        header = "\n".join(line for line in text.splitlines() if line.startswith("--"))
        assert all(len(re.findall(rf"\b{field}: \S", header)) == 1 for field in ("Purpose", "Needs", "Parameters")), (
            name
        )
        users = [user for user, other in (FILES | PARTS).items() if name in named_in(other)]
        assert len(users) >= 2, f"{name} is used by {users} alone: write it out there"
    for name, text in (FILES | PARTS).items():
        assert named_in(text) <= PARTS.keys(), name


def test_no_copy_of_a_part_stands_anywhere() -> None:
    """What has a part of its own is decided nowhere else: neither by the same text nor by its telling words."""
    plain = {name: " ".join(without_comments(text).split()) for name, text in FILES.items()}
    for name, text in PARTS.items():
        part = " ".join(without_comments(text).split())
        assert [user for user, body in plain.items() if part in body] == [], name
    for words, elsewhere in TELLING.items():
        assert {name for name, body in plain.items() if re.search(words, body)} == elsewhere, words


def test_the_functions_of_the_schema_set_aside_for_keys_as_the_statements_do(shared_database: Database) -> None:
    """How far behind its place a job stands that waits for its key is the same number in every function and part."""
    with shared_database.connect() as connection:
        found = connection.execute(
            "SELECT p.prosrc FROM pg_proc AS p WHERE p.pronamespace = %s::regnamespace", [shared_database.schema]
        ).fetchall()
    written = "\n".join(row[0] for row in found)
    for part, like in (("key_aside_for", r"interval '\d{6,} hours'"), ("key_aside_from", r"'\d{4}-01-01Z'")):
        stated = without_comments(PARTS[part]).removeprefix("timestamptz ")
        assert set(re.findall(like, written)) == {stated}, part


@every_file
def test_every_table_is_qualified(name: str) -> None:
    """No table or function of ours is found through the search path."""
    text = PLAIN.for_psycopg(name)
    for table in [
        *TABLES,
        "clock",
        "enqueue_3",
        "enqueue_one_3",
        "enqueue_new_3",
        "enqueue_subjects_1",
        "write_jobs_2",
        "bounded_1",
        "once_1",
    ]:
        for found in re.finditer(
            rf"\b(?:FROM|JOIN|INTO|UPDATE|,|\()\s+{table}\b(?!\s*AS\b\s*(?:MATERIALIZED)?\s*\()", text
        ):
            raise AssertionError(f"{name}: {found.group()}")
    assert not re.search(r"(?<!\.)\bclock\(\)", text)


@pytest.mark.parametrize(
    "name", sorted(FILES.keys() - {"enqueue", "enqueue_one", "enqueue_subjects", "once"})
)  # their text is what every writer test sends
def test_every_statement_runs_without_a_search_path(shared_database: Database, name: str) -> None:
    """The texts are valid SQL with nothing but `{schema}` to find the tables by."""
    text = shared_database.statements.for_psycopg(name)
    parameters = dict.fromkeys(re.findall(r"%\((\w+)\)s", text))
    with shared_database.connect(autocommit=False) as connection:
        connection.execute("SET search_path = pg_catalog")
        with connection.cursor() as cursor:
            try:
                cursor.execute(text, parameters)
            except psycopg.errors.NotNullViolation:
                assert name in NEEDY
        connection.rollback()


@pytest.mark.parametrize("schema", HOSTILE)
def test_a_whole_life_under_a_hostile_schema_name(database: Database, schema: str) -> None:
    """Any legal schema name works in both flavours of every statement, beside the first installation."""
    upgrade_database(database.url, schema)
    mine = Database(database.url, schema)
    try:
        with mine.engine().begin() as connection:
            ref = enqueue(connection, Note(key="k", body="%s :x {schema}"), schema=schema)
            enqueue_many(connection, notes(3), schema=schema)
            assert get_job(connection, ref.id, schema=schema) == find_job(
                connection, kind="test.note", logical_key="k", schema=schema
            )
            assert get_job(connection, ref.id) is None
        link = mine.link()
        assert [queue.name for queue in due_queues(link, runway=5)] == ["notes"]
        hints = release_all(link)
        claimed = take(link, [hint.job_id for hint in hints])
        assert len(complete(link, [item.lease for item in claimed])) == 4
        assert list_queues(link) == []
        assert check_invariants(mine) == []
        assert (mine.count("jobs"), database.count("jobs")) == (4, 0)
    finally:
        mine.close()


def test_two_installations_do_not_see_each_other(
    database: Database, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same key makes a job in each; the environment names the default one."""
    upgrade_database(database.url, "second")
    with engine.begin() as connection:
        first = enqueue(connection, Note(key="k"))
        second = enqueue(connection, Note(key="k"), schema="second")
        monkeypatch.setenv("OUTBOX_SCHEMA", "second")
        again = enqueue(connection, Note(key="k"))
    assert first.created
    assert second.created
    assert again.id == second.id != first.id


@pytest.mark.parametrize("schema", ["", "x" * 64, "é" * 32, "pg_mine", "information_schema", "a\x00b", "\ud800"])
def test_an_impossible_schema_name_is_refused(schema: str) -> None:
    """What PostgreSQL can't take as a name, or would cut off, is a settings error."""
    with pytest.raises(SettingsError, match=r"^schema"):
        Statements(schema)


def test_statements_are_shared_and_texts_are_made_once() -> None:
    """One object per schema, one text per statement and flavour."""
    assert statements_for("outbox") is statements_for("outbox")
    one = statements_for("outbox")
    assert one.for_psycopg("claim") is one.for_psycopg("claim")
    assert one.for_sqlalchemy("cancel") is one.for_sqlalchemy("cancel")
    assert "--" not in one.for_psycopg("claim")
