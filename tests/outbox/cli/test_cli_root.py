"""The program's root: exit codes, one masked line per error, commands that can't be loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any
from uuid import UUID

import click
import psycopg
import pytest
import sqlalchemy.exc

from outbox.cli import root
from outbox.cli.failures import exit_code
from outbox.cli.output import connect, is_json, json_option, load_settings
from outbox.errors import BrokerError, HandlerError, JobNotFound, NameRefused, SettingsError
from outbox.servers import NoBroker
from outbox.settings import load
from outbox.texts import masking

UNREACHABLE = "postgresql://u:canary%40secret@127.0.0.1:1/db?connect_timeout=2"


pytestmark = pytest.mark.usefixtures("fresh_registry")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Install a function as the command `probe`."""

    def install(function: Callable[..., Any]) -> None:
        probe = click.command("probe")(json_option(function))
        monkeypatch.setitem(root.cli.commands, "probe", probe)

    return install


def raising(error: BaseException) -> Callable[[], None]:
    """Return a command that raises `error`."""

    def probe() -> None:
        raise error

    return probe


def outbox(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the real program."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OUTBOX_", "PG"))}
    return subprocess.run(
        [sys.executable, "-c", "from outbox.cli.root import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**clean, **env},
    )


def test_help_documents_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """The help names every command, each exit code and where addresses come from."""
    assert root.run(["--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("db", "jobs", "queues", "relay", "consume", "demo", "Exit codes", "130", "OUTBOX_DATABASE_URL"):
        assert word in shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), 2),
        (NameRefused("by", "is empty"), 2),
        (HandlerError("no handlers"), 2),
        (JobNotFound(UUID(int=1)), 1),
        (BrokerError("refused"), 3),
        (psycopg.OperationalError("connection failed"), 3),
        (psycopg.errors.InvalidPassword("no"), 3),
        (psycopg.errors.AdminShutdown("bye"), 3),
        (psycopg.errors.ReadOnlySqlTransaction("standby"), 3),
        (psycopg.errors.QueryCanceled("timeout"), 1),
        (psycopg.errors.UndefinedTable("none"), 1),
        (psycopg.errors.UniqueViolation("twice"), 1),
        (sqlalchemy.exc.OperationalError("SELECT 1", {}, psycopg.OperationalError("away")), 3),
        (sqlalchemy.exc.ProgrammingError("SELECT 1", {}, psycopg.errors.UndefinedTable("none")), 1),
        (NoBroker("none to be had"), 3),
        (KeyError("bug"), 4),
        (click.UsageError("x"), 2),
        (click.ClickException("x"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    """Every sort of error has its documented exit code."""
    assert exit_code(error) == code


def test_an_error_is_one_masked_line(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `--debug` an error is a single line with no secret, also for a defect."""
    masking.register("canary-secret")
    command(raising(ValueError("canary-secret\nand\x1b[31m more")))
    assert root.run(["probe"]) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "Error: unexpected ValueError: *** and[31m more (--debug shows the traceback)\n"


def test_debug_shows_a_masked_traceback(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`--debug` adds the traceback, masked."""
    masking.register("canary-secret")
    command(raising(ValueError("canary-secret")))
    assert root.run(["--debug", "probe"]) == 4
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "canary" not in shown.replace("raise error", "")


@pytest.mark.parametrize("arguments", [["--json", "probe"], ["probe", "--json"]])
def test_json_stands_before_or_after(command: Any, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """`--json` is understood on both sides of the command, for answers and for errors."""

    def probe() -> None:
        click.echo(str(is_json()))
        raise SettingsError("wrong")

    command(probe)
    assert root.run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "True\n"
    assert json.loads(shown.err) == {"error": {"code": "settings", "message": "wrong"}}


def test_usage_errors_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option ends with exit code 2, and as an object if JSON was asked for."""
    assert root.run(["jobs", "list", "--json", "--nonsense"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"
    assert root.run(["nonsense"]) == 2
    assert "No such command" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_ends_with_130(command: Any, error: BaseException) -> None:
    """An interrupt has the shell's customary code and no traceback."""
    command(raising(error))
    assert root.run(["probe"]) == 130


def test_a_number_returned_is_the_exit_code(command: Any) -> None:
    """A command may end with a code of its own, by returning it or by click's exit."""

    def exiting() -> None:
        click.get_current_context().exit(1)

    command(lambda: 1)
    assert root.run(["probe"]) == 1
    command(exiting)
    assert root.run(["probe"]) == 1
    command(lambda: None)
    assert root.run(["probe"]) == 0


@pytest.mark.parametrize(
    "value", ["outbox.no_such_module:x", "outbox.errors:no_such_name", "outbox.errors:SettingsError"]
)
def test_a_command_that_cant_be_loaded_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """It is listed all the same, and running it with any arguments says what to install."""
    point = EntryPoint("relay", value, root.COMMANDS)

    def points(*, group: str, name: str = "relay") -> list[EntryPoint]:
        return [point] if (group, name) == (root.COMMANDS, "relay") else []

    monkeypatch.setattr(root, "entry_points", points)
    assert root.run(["--help"]) == 0
    assert "pip install 'outbox-relay[relay]'" in capsys.readouterr().out
    for arguments in (["relay"], ["relay", "--any", "thing"], ["relay", "--help"]):
        assert root.run(arguments) == 2
        assert "pip install 'outbox-relay[relay]'" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "code"), [("pika", 2), ("pika.adapters", 2), ("pikachu", 4)])
def test_a_module_missing_while_a_command_runs_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    """A module of an extra that is missed only at run time is told as at loading; any other one is a defect."""
    error = ModuleNotFoundError(f"No module named '{name}'", name=name)
    monkeypatch.setitem(root.cli.commands, "consume", click.command("consume")(raising(error)))
    assert root.run(["consume"]) == code
    assert ("pip install 'outbox-relay[consumer]'" in capsys.readouterr().err) == (code == 2)


@pytest.mark.parametrize("arguments", [["--json", "--version"], ["--version", "--json"]])
def test_the_version_is_json_too(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """`--version` is a line, or with `--json` on either side an object."""
    assert root.run(["--version"]) == 0
    number = capsys.readouterr().out.removeprefix("outbox, version ").strip()
    assert root.run(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {"version": number}


@pytest.mark.parametrize("form", ["postgresql://u@127.0.0.1:1/d?sslmode=always", "host=127.0.0.1 sslmode=always"])
def test_an_impossible_sslmode_is_a_settings_error(form: str) -> None:
    """What libpq would refuse at each connection is refused at the start, naming what is possible."""
    done = outbox("queues", OUTBOX_DATABASE_URL=form)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "verify-full" in done.stderr


def test_settings_come_from_the_given_file(command: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`--config` reaches the command, whose own options win over it."""
    path = tmp_path / "outbox.toml"
    path.write_text("amqp_prefix = 'from-file'\nqueue_type = 'classic'\n")

    def probe() -> None:
        settings = load_settings(queue_type="quorum", relay={"batch": None})
        click.echo(f"{settings.amqp_prefix} {settings.queue_type}")

    command(probe)
    assert root.run(["--config", str(path), "probe"]) == 0
    assert capsys.readouterr().out == "from-file quorum\n"
    assert root.run(["--config", str(tmp_path / "missing.toml"), "probe"]) == 2


@pytest.mark.parametrize("arguments", [("queues",), ("jobs", "list", "--json"), ("--debug", "queues")])
def test_an_unreachable_database_is_told_without_its_password(arguments: tuple[str, ...]) -> None:
    """Exit code 3, one line, and the password in no encoding, with traceback or without."""
    done = outbox(*arguments, OUTBOX_DATABASE_URL=UNREACHABLE)
    assert done.returncode == 3
    assert "can't be reached" in done.stderr
    for written in ("canary@secret", "canary%40secret", "canary"):
        assert written not in done.stdout + done.stderr


def test_a_missing_address_is_a_settings_error() -> None:
    """Without any address the remedy is told, with exit code 2."""
    done = outbox("queues")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "OUTBOX_DATABASE_URL is not set" in done.stderr


def test_missing_tables_name_the_remedy(database_url: str) -> None:
    """On a database without our tables the answer is to run the upgrade."""
    done = outbox("queues", OUTBOX_DATABASE_URL=database_url, OUTBOX_SCHEMA="not_there")
    assert done.returncode == 1
    assert "run: outbox db upgrade" in done.stderr


def test_statements_are_bounded_and_leave_no_limit_behind(database_url: str) -> None:
    """A command's transaction has a statement limit of its own, and ends with it."""
    settings = load(env={"OUTBOX_DATABASE_URL": database_url})
    with connect(settings, statement_timeout_s=7) as link:
        row = link.connection().execute("SHOW statement_timeout").fetchone()
        assert row is not None
        assert row[0] == "7s"
    with pytest.raises(psycopg.errors.QueryCanceled), connect(settings, statement_timeout_s=0.2) as link:
        link.connection().execute("SELECT pg_sleep(30)")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """With stdout closed early the program ends quietly, by the customary code."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from outbox.cli.root import main; main()", "--help"],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_real_interrupt_ends_quietly() -> None:
    """SIGINT in the middle of a command: exit code 130 and no traceback."""
    program = (
        "import click, sys, time\nfrom outbox.cli import root\n"
        "@root.cli.command()\ndef wait():\n    click.echo('ready')\n    time.sleep(60)\n"
        "sys.argv = ['outbox', 'wait']\nroot.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")


def test_a_terminal_without_unicode_gets_escapes() -> None:
    """An ASCII-only stdout can't make the program crash."""
    done = outbox("--help", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 0
