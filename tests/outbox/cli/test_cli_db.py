"""`outbox db upgrade | check | sql`: what they print, in words and as JSON, and how they exit."""

import json
import uuid
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from outbox.cli.root import run
from outbox.migrations import head
from outbox.migrations.revisions import pending
from outbox.servers import databases
from outbox.texts.masking import forget_all

ALL = [script.revision for script in pending(None)]
CANARY = "c4nary%40:/?#-é"


@pytest.fixture
def engine(postgres_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Give an engine on an empty database that the command finds in its environment."""
    name = f"migration_{uuid.uuid4().hex[:12]}"
    databases.create(postgres_server, name)
    url = databases.url_of(databases.plain(postgres_server), name)
    for variable in ("OUTBOX_SCHEMA", "OUTBOX_CONFIG", "OUTBOX_AMQP_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OUTBOX_DATABASE_URL", url)
    try:
        yield create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    finally:
        databases.drop(postgres_server, name)
        forget_all()


@pytest.mark.usefixtures("engine")
def test_upgrade_says_what_it_did(capfd: pytest.CaptureFixture[str]) -> None:
    """The first run names what was applied, the second says that there was nothing to do."""
    assert run(["db", "upgrade"]) == 0
    assert capfd.readouterr().out == f"schema outbox: from nothing to revision {head()} (applied {', '.join(ALL)})\n"
    assert run(["db", "upgrade"]) == 0
    assert capfd.readouterr().out == f"schema outbox: nothing to do, at revision {head()}\n"


@pytest.mark.usefixtures("engine")
def test_upgrade_and_check_write_json(capfd: pytest.CaptureFixture[str]) -> None:
    """With --json, before or after the command, the outcome is one object."""
    assert run(["--json", "db", "check"]) == 1
    assert json.loads(capfd.readouterr().out)["pending"] == ALL
    assert run(["db", "--json", "check"]) == 1
    assert json.loads(capfd.readouterr().out)["pending"] == ALL
    assert run(["db", "upgrade", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {
        "schema": "outbox",
        "before": None,
        "after": head(),
        "applied": ALL,
    }
    assert run(["db", "check", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["ok"], found["revision"], found["differences"]) == (True, head(), [])


def test_check_tells_the_differences_apart(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    """Not installed, as expected, different: each has its line, and only the second exits with 0."""
    assert run(["db", "check"]) == 1
    assert capfd.readouterr().out.startswith("pending: 0001")
    assert run(["db", "upgrade"]) == 0
    capfd.readouterr()
    assert run(["db", "check"]) == 0
    assert capfd.readouterr().out == f"as expected at revision {head()}\n"
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX outbox.outbox_owed"))
        connection.execute(text('ALTER TABLE outbox.jobs ADD COLUMN "\x1b[31mred" text'))
    assert run(["db", "check"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "missing: index outbox.outbox_owed" in lines
    assert "\x1b" not in "".join(lines)
    assert run(["db", "check", "--json"]) == 1
    kinds = [item["kind"] for item in json.loads(capfd.readouterr().out)["differences"]]
    assert sorted(kinds) == ["missing", "unexpected"]


def test_the_schema_comes_from_the_settings_or_the_option(
    engine: Engine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUTBOX_SCHEMA names the schema, and --schema wins over it."""
    monkeypatch.setenv("OUTBOX_SCHEMA", "from env %")
    assert run(["db", "upgrade"]) == 0
    assert run(["db", "upgrade", "--schema", 'it"s']) == 0
    with engine.connect() as connection:
        found = connection.scalars(text("SELECT schemaname FROM pg_tables WHERE tablename = 'jobs'"))
        assert set(found) == {"from env %", 'it"s'}
    assert 'schema it"s: from nothing' in capfd.readouterr().out


def test_sql_prints_a_script_that_runs(
    engine: Engine, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed script needs no database to be made and, run as it is, installs what `check` expects."""
    url = databases.plain(engine.url.render_as_string(hide_password=False))
    monkeypatch.delenv("OUTBOX_DATABASE_URL")
    assert run(["db", "sql", "--schema", "é %s"]) == 0
    script = capfdbinary.readouterr().out.decode("utf-8")
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(script, execution_options={"no_parameters": True})
    monkeypatch.setenv("OUTBOX_DATABASE_URL", url)
    assert run(["db", "check", "--schema", "é %s"]) == 0
    capfdbinary.readouterr()
    assert run(["db", "sql", "--schema", "é %s", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out) == {"schema": "é %s", "sql": script}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["db", "upgrade", "--revision", "nine"], 2, "'--revision': there is no revision 'nine'"),
        (["db", "sql", "--revision", "nine"], 2, "'--revision': there is no revision 'nine'"),
        (["db", "sql", "--since", "9"], 2, "'--since': there is no revision '9'"),
        (["db", "upgrade", "--schema", "pg_mine"], 2, "belong to PostgreSQL"),
        (["db", "check", "--schema", "x" * 64], 2, "64 bytes"),
        (["db", "upgrade", "--wait", "-1"], 2, "range"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    arguments: list[str], code: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """What can't be done is said in one line on stderr, and nothing is printed on stdout."""
    assert run(arguments) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_newer_schema_is_an_error_of_its_own(engine: Engine, capfd: pytest.CaptureFixture[str]) -> None:
    """Where a newer release has been, `upgrade` refuses and `check` says so."""
    assert run(["db", "upgrade"]) == 0
    with engine.begin() as connection:
        connection.execute(text("UPDATE outbox.outbox_schema_version SET version_num = '0099'"))
    assert run(["db", "upgrade", "--json"]) == 1
    assert json.loads(capfd.readouterr().err)["error"]["code"] == "schema_too_new"
    assert run(["db", "check"]) == 1
    assert capfd.readouterr().out.startswith("newer: the schema is at revision 0099")


@pytest.mark.parametrize("command", ["upgrade", "check"])
def test_no_password_is_ever_shown(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that can't be reached is exit code 3, and the password stays out of it, traceback included."""
    url = f"postgresql://user:{CANARY}@127.0.0.1:1/db?connect_timeout=2"
    monkeypatch.setenv("OUTBOX_DATABASE_URL", url)
    try:
        assert run(["--debug", "db", command]) == 3
    finally:
        forget_all()
    out, err = capfd.readouterr()
    assert "c4nary" not in out + err
    assert "can't be reached" in err
