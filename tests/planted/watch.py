"""A plugin of pytest that searches all that comes out of a run for what its tests have planted: `-p planted.watch`.

Every value that a test begins with `canary-` is a secret, wherever it is put: into a sensitive field, an address, a
key. So are the passwords of the run's servers and the keys of tests. They are searched for in what each test prints and
logs (as the product writes logs), in the output and log files of the processes that it starts, in the rows that its
database holds at the end, in all spans of its relays and consumers, in the logs of the servers, and in the command
lines of all processes. Payloads are where
secrets belong, and so are the results and checkpoints that handlers store. A test out of which one has come fails,
and so does the run.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from _pytest.capture import CaptureFixture
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from outbox.logs import TextFormatter
from outbox.servers.instance import Instance
from outbox.tracing.tracer import Tracing
from planted.words import Words
from support import database, servers
from support.spans import Exporting, Kept

_LARGEST = 20_000_000  # bytes of a file that are read
_LOOK_EVERY_S = 0.1
_GONE = (psycopg.OperationalError, psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable)
_TABLES = """
SELECT c.relname FROM pg_class AS c WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(quote_ident(%s))
"""
_ROWS = """
SELECT count(*) FROM {{s}}."{}" AS t WHERE
  (to_jsonb(t) - ARRAY['payload', 'new_payload', 'old_payload', 'result', 'value'] #- '{{detail,result}}')::text ~ %s
"""


class _Searching(SpanProcessor):
    """Has each span searched that ends."""

    def __init__(self, look: Callable[[str, str], None]) -> None:
        self._look = look

    def on_end(self, span: ReadableSpan) -> None:
        """Search it."""
        self._look("a span", span.to_json())


class Watch:
    """Finds secrets, and keeps what it has found until somebody asks. It names the outlet and never the secret."""

    def __init__(self, config: pytest.Config) -> None:
        self.words = Words()
        self._owner = not hasattr(config, "workerinput")
        self._found: list[str] = []
        self._found_in_passing: list[str] = []
        self._files: set[Path] = set()
        self._instances: weakref.WeakSet[Instance] = weakref.WeakSet()
        self._over = threading.Event()
        self._patch = pytest.MonkeyPatch()
        self._wrap_outlets()
        database.AT_END.append(self._search_rows)
        if self._owner:
            threading.Thread(target=self._watch_processes, daemon=True, name="planted-watch").start()

    def look(self, outlet: str, text: str | bytes | None) -> None:
        """Search a text."""
        if text:
            readable = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
            self._found += [f"{kind} in {outlet}" for kind in self.words.found(readable)]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Have logs written as the product writes them, and all of them."""
        plugin: Any = session.config.pluginmanager.get_plugin("logging-plugin")
        plugin.report_handler.setFormatter(TextFormatter())
        plugin.log_level = logging.DEBUG
        logging.getLogger("pika").setLevel(logging.INFO)  # its own frames: thousands of lines a second

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Search what the test has left so far, and fail it at its end for what was found."""
        report: Any = yield
        for title, text in report.sections:
            self.look(title.lower(), text)
        if report.when == "teardown":
            for path in self._files:
                self._search_file(path)
            self._files.clear()
            found, self._found = sorted(set(self._found)), []
            if found:
                report.outcome, report.longrepr = "failed", "A planted secret came out: " + "; ".join(found)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Search what outlives tests: the servers' logs and the command lines."""
        self._over.set()
        if not self._owner:
            return
        for instance in list(self._instances):
            self._search_logs(instance)
        self._found_in_passing += self._found
        if self._found_in_passing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Tell what was found outside of tests."""
        for line in sorted(set(self._found_in_passing)):
            terminalreporter.write_line(f"A planted secret came out: {line}", red=True)

    def pytest_unconfigure(self) -> None:
        """Leave everything as it was."""
        self._patch.undo()
        database.AT_END.remove(self._search_rows)

    def _wrap_outlets(self) -> None:
        def after(owner: type, name: str, then: Callable[..., None], *, before: bool = False) -> None:
            original = getattr(owner, name)

            def wrapped(this: Any, *arguments: Any, **options: Any) -> Any:
                if before:
                    then(this, None)
                answer = original(this, *arguments, **options)
                if not before:
                    then(this, answer)
                return answer

            self._patch.setattr(owner, name, wrapped)

        after(CaptureFixture, "readouterr", lambda _, answer: [self.look("output", text) for text in answer])
        after(subprocess.Popen, "communicate", lambda _, answer: [self.look("a process", text) for text in answer])
        after(Instance, "__init__", lambda instance, _: self._instances.add(instance))
        after(Instance, "close", lambda instance, _: self._search_logs(instance), before=True)
        for kind in (servers.RunServers, servers.RemoteServers):
            after(kind, "get", lambda _, answer: self.words.add_address(answer))
        self._patch.setattr("outbox.telemetry.process.open_telemetry", lambda *_: Exporting(self._tracing()))
        after(Kept, "own", lambda _, answer: [self.look("a span", span.to_json()) for span in answer])
        start = subprocess.Popen.__init__

        def started(this: Any, *arguments: Any, **options: Any) -> None:
            for stream in (options.get("stdout"), options.get("stderr")):
                if isinstance(getattr(stream, "name", None), str):
                    self._files.add(Path(stream.name))
            if spans := (options.get("env") or {}).get("OUTBOX_TELEMETRY_SPANS_FILE"):
                self._files.add(Path(spans))
            start(this, *arguments, **options)

        self._patch.setattr(subprocess.Popen, "__init__", started)

    def _tracing(self) -> Tracing:
        """Return what every relay and consumer of this process traces by: each of their spans is searched."""
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(_Searching(self.look))
        return Tracing(provider.get_tracer("outbox"), per_s=1e9)

    def _search_file(self, path: Path) -> None:
        with suppress(OSError), path.open("rb") as file:
            self.look(f"the file {path.name}", file.read(_LARGEST))

    def _search_logs(self, instance: Instance) -> None:
        for path in instance.folder.rglob("*.log"):
            self._search_file(path)

    def _search_rows(self, made: database.Database) -> None:
        """Search all tables of the test's installation, unless the test has taken the server or the right away."""
        with suppress(*_GONE), made.connect(autocommit=True) as connection:
            for (table,) in connection.execute(_TABLES, [made.schema]).fetchall():
                query = made.sql(_ROWS.format(table), escaped=True)
                count = connection.execute(query, [self.words.pattern]).fetchone()
                if count and count[0]:
                    self._found.append(f"a secret in {count[0]} rows of {table}")

    def _watch_processes(self) -> None:
        seen: set[str] = set()
        while not self._over.wait(_LOOK_EVERY_S):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = path.read_text(errors="replace")
                    if line not in seen and self.words.found(line):
                        program = " ".join(line.split("\0")[:2])
                        self._found_in_passing.append(f"a secret in the command line of {program[:60]!r}")
                    seen.add(line)


def pytest_configure(config: pytest.Config) -> None:
    """Watch this process' part of the run."""
    config.pluginmanager.register(Watch(config), "planted-watch")
