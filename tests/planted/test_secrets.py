"""Real processes at work with planted secrets; then every log, row, output and command line is searched for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import sqlalchemy as sa

from outbox import LogicalKeyConflict, PayloadError, enqueue
from outbox.cli import root
from outbox.sealing import load_keys
from planted.canaries import (
    ALL,
    BROKER,
    DATABASE,
    DIGEST_KEY_TEXT,
    FIELD,
    KEY_TEXT,
    Charge,
    Checked,
    Lifted,
    SealedCharge,
)
from support.database import Database
from support.sealing import rows_with, using
from support.waiting import until

TESTS = Path(__file__).parents[1]
_OUTBOX = "import sys; from outbox.cli.root import main; sys.exit(main())"
_KEYS = f'digest_key = "{DIGEST_KEY_TEXT}"\n[keys.planted]\nsecret = "{KEY_TEXT}"\nprimary = true\n'
_MODULE = ("--module", "planted.canaries")
_WHO = ("--by", "test", "--reason", "search")
_END_S = 60
_LOOKS = ("db check", "jobs list", "queues", "consumers", "dead list", "doctor", "keys list", "effects list")


class Bench:
    """Runs commands and processes with the secrets in their environment, and keeps all that they write."""

    def __init__(self, database_url: str, folder: Path, prefix: str) -> None:
        self.written: dict[str, str] = {}
        self.command_lines: set[str] = set()
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        keys = folder / "keys.toml"
        keys.touch(0o600)
        keys.write_text(_KEYS, encoding="ascii")
        self.keys = keys
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")} | {
            "OUTBOX_DATABASE_URL": database_url,
            "OUTBOX_AMQP_URL": f"amqp://planted:{BROKER}@127.0.0.1:1/none",
            "OUTBOX_AMQP_PREFIX": prefix,
            "OUTBOX_KEYS_FILE": str(keys),
            "OUTBOX_CONSUMER_BROKERLESS_AFTER_S": "0",
            "OUTBOX_LOG_LEVEL": "debug",
            "PYTHONPATH": str(TESTS),
        }

    def run(self, *arguments: str) -> None:
        """Run a command in this process: so many would take minutes otherwise."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
                patch.delenv(name)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.syspath_prepend(str(TESTS))
            with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
                code = root.run(arguments)
        assert code in (0, 1), f"{arguments}: {err.getvalue()}"
        self.written[" ".join(arguments)] = out.getvalue() + err.getvalue()

    def fail(self, *arguments: str, **environment: str) -> None:
        """Run a command that fails in a process of its own, to its end."""
        done = subprocess.run(
            [sys.executable, "-c", _OUTBOX, *arguments],
            env=self.environment | environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=_END_S,
            check=False,
        )
        assert done.returncode
        self.written[f"{' '.join(arguments)} {len(self.written)}"] = done.stdout + done.stderr

    def start(self, *arguments: str, **environment: str) -> None:
        """Start a process that runs until `stop`."""
        name = f"{' '.join(arguments)} {len(self._running)}"
        with (self._folder / f"log-{len(self._running)}").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-c", _OUTBOX, *arguments],
                env=self.environment | environment,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.look()

    def look(self) -> None:
        """Remember the command lines of all processes that are there."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                self.command_lines.add(path.read_text(errors="replace"))
            except OSError:  # it has ended
                continue

    def stop(self) -> None:
        """End what was started and keep its logs."""
        self.look()
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for number, (name, process) in enumerate(self._running.items()):
            try:
                process.wait(_END_S)
            finally:
                process.kill()
            self.written[name] = (self._folder / f"log-{number}").read_text(errors="replace")
        self._running.clear()


def with_account(url: str, user: str, password: str) -> str:
    """Return a URL with another account."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
def account(database: Database) -> Iterator[str]:
    """Yield a role of the server that has the planted password, for as long as the test runs."""
    name = f"planted_{uuid.uuid4().hex[:12]}"
    database.rows(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{DATABASE}'")
    yield name
    database.rows(f"DROP ROLE {name}")


@pytest.fixture
def bench(database: Database, account: str, tmp_path: Path, prefix: str) -> Iterator[Bench]:
    """Yield a bench on this test's own database."""
    bench = Bench(with_account(database.url, account, DATABASE), tmp_path, prefix)
    yield bench
    bench.stop()


def complaint(action: Callable[[], Any], kind: type[Exception]) -> str:
    """Return what an action's error says."""
    with pytest.raises(kind) as caught:
        action()
    return f"{caught.value} {caught.value!r} {caught.getrepr(style='native')}"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_outlet_holds_a_planted_secret(bench: Bench, database: Database) -> None:
    """Jobs that fail in every way, sealed and in clear, beside servers that refuse, and all commands that show them."""
    said = _submitted(bench, database)
    bench.start("relay")
    bench.start("consume", "planted.canaries", "--json", OUTBOX_LOG_FORMAT="json")
    until(lambda: database.count("jobs WHERE state = 'failed'") == 4, within_s=60)
    _commands(bench, database)
    bench.stop()
    logs = "".join(bench.written.values())
    assert "charging ***" in logs
    assert "payload_upgrade_failed" in logs
    outlets = {**bench.written, "errors": said, "processes": "\n".join(bench.command_lines)}
    assert {name: secret for name, text in outlets.items() for secret in ALL if secret in text} == {}
    _search_rows(database)


def _submitted(bench: Bench, database: Database) -> str:
    engine = database.engine(poolclass=sa.NullPool)
    with using(load_keys(bench.keys)), engine.begin() as connection:
        for payload in (Charge(account="a"), SealedCharge(account="a"), Lifted(account="a"), Checked(account="a")):
            enqueue(connection, payload)
        errors = complaint(lambda: enqueue(connection, Charge(account="a", card=f"{FIELD}2")), LogicalKeyConflict)
        errors += complaint(lambda: enqueue(connection, Charge(account="b", card=f"{FIELD}\x00")), PayloadError)
    database.rows("UPDATE {s}.jobs SET version = 1 WHERE kind = 'secrets.lifted'")
    database.rows(
        "UPDATE {s}.jobs SET payload = jsonb_set(payload, '{card}', to_jsonb(%s::text)) WHERE kind = 'secrets.checked'",
        f"{FIELD}!",
    )
    return errors


def _commands(bench: Bench, database: Database) -> None:
    ids = [str(job_id) for (job_id,) in database.rows("SELECT id FROM {s}.jobs ORDER BY id")]
    for extra in ((), ("--json",)):
        for command in (
            "db check",
            "jobs list",
            "queues",
            "consumers",
            "dead list",
            "doctor",
            "keys list",
            "effects list",
        ):
            bench.run(*command.split(), *extra)
        for job_id in ids:
            bench.run("jobs", "show", job_id, "--payload", *extra)
            bench.run("jobs", "show", job_id, "--payload", *_MODULE, *extra)
            bench.run("dead", "show", job_id, *_MODULE, *extra)
    bench.run("jobs", "cancel", ids[0], *_WHO)
    bench.run("purge", "--dry-run", "--older-than", "30d")
    nowhere = f"postgresql://planted:{DATABASE}@127.0.0.1:1/none"
    bench.fail("jobs", "list", "--debug", OUTBOX_DATABASE_URL=nowhere)
    bench.fail("jobs", "list", "--debug", OUTBOX_DATABASE_URL=f"postgresql://planted:{DATABASE}@[::/none")
    bench.fail("relay", OUTBOX_AMQP_URL=f"amqp://planted:{BROKER}@host:port/")


def _search_rows(database: Database) -> None:
    for kind in (Charge.kind, Lifted.kind, Checked.kind):  # where they belong
        database.rows("UPDATE {s}.jobs SET payload = 'null' WHERE kind = %s", kind)
    assert {secret: found for secret in ALL if (found := rows_with(database, secret))} == {}
