"""What the program loads: no command pays for another, and the help for none."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

from outbox.cli import known
from outbox.cli.known import KNOWN, known_help
from outbox.cli.root import COMMANDS
from outbox_schemas.lazily import lazily

_RUN = """
import json, sys
from outbox.cli import root
code = root.run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
_HEAVY = {"pydantic", "sqlalchemy", "psycopg", "pika", "alembic", "cryptography", "outbox_consumer", "outbox_relay"}


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command line has loaded by its end."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments], capture_output=True, text=True, timeout=100, check=True
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize("arguments", [["--help"], ["--version", "--json"]], ids=" ".join)
def test_the_root_loads_no_command(arguments: list[str]) -> None:
    """Neither a database nor a broker nor a model of anything: some two hundred modules, mostly Python's own."""
    modules = loaded_by(*arguments)
    assert not modules & _HEAVY
    ours = {name for name in modules if name.startswith("outbox.")}
    assert not {name for name in ours if name.startswith("outbox.cli.")} - {
        f"outbox.cli.{name}" for name in ("failures", "flags", "groups", "known", "root", "streams")
    }
    assert len(modules) < 250


def test_a_command_loads_what_it_needs() -> None:
    """One that reads knows no handlers, no broker and no migrations."""
    modules = loaded_by("jobs", "list", "--help")
    assert modules & _HEAVY == {"pydantic", "sqlalchemy", "psycopg"}


def test_no_process_loads_opentelemetry_unasked() -> None:
    """Neither relay nor consumer, with all that they need to run, nor a service that submits."""
    modules = "outbox_relay.process outbox_consumer.runtime outbox.submitting.writer"
    code = f"import sys, {modules.replace(' ', ', ')}; print([n for n in sys.modules if n.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "[]"


def test_what_the_help_says_is_what_the_commands_say() -> None:
    """Each command of this distribution is known, by its entry point and its own first sentence."""
    points = {point.name: point for point in entry_points(group=COMMANDS)}
    assert {name: point.value for name, point in points.items()} == {name: one.value for name, one in KNOWN.items()}
    for name, one in KNOWN.items():
        assert points[name].load().get_short_help_str(1000) == one.help, name
        assert known_help(points[name]) == one.help


def test_what_is_not_known_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of somebody else, one that has another's name, and one whose extra is missing."""
    assert known_help(EntryPoint("mine", "somebody.cli:mine", COMMANDS)) is None
    assert known_help(EntryPoint("jobs", "somebody.cli:jobs", COMMANDS)) is None
    monkeypatch.setattr(known, "find_spec", lambda _name: None)
    assert known_help(EntryPoint("relay", KNOWN["relay"].value, COMMANDS)) is None


def _lists(package: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names that a package imports for type checkers, and those that it loads when asked, by name."""
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (branch,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        alias.name: str(node.module) for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    (table,) = [node for node in ast.walk(ast.Module(branch.orelse, [])) if isinstance(node, ast.Dict)]
    homes: dict[str, str] = ast.literal_eval(table)
    return imported, {name: home for home, names in homes.items() for name in names.split()}


@pytest.mark.parametrize("name", ["outbox", "outbox_schemas"])
def test_a_package_loads_the_names_that_it_declares(name: str) -> None:
    """What type checkers see, what is loaded, and what is public are the same; each is what its module holds."""
    package = importlib.import_module(name)
    imported, loaded = _lists(package)
    assert imported == loaded
    assert set(package.__all__) == set(loaded)
    for one, home in loaded.items():
        assert getattr(package, one) is getattr(importlib.import_module(home), one)
    assert set(package.__all__) <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    load, names = lazily("outbox", {"outbox.texts.spans": "span"})
    assert "span" in names()
    with pytest.raises(AttributeError, match=r"module 'outbox' has no attribute 'spam'"):
        load("spam")
    with pytest.raises(ImportError):
        exec("from outbox import no_such_name")  # noqa: S102 - as a user writes it
