"""Whatever stands in a block of README and docs runs as it stands, on the reader's own servers."""

from __future__ import annotations

import base64
import re
import shlex
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import click
import pytest
import sqlalchemy as sa

from outbox.cli.root import cli
from outbox.sealing.keyfile import load_keys
from outbox.settings import load
from support.database import Database
from support.redrives import dead

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "statements" / "README.md"]
ADDRESS = re.compile(r"postgresql(\+psycopg)?://localhost/app")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    number: int
    language: str
    text: str


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        found = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for number, (indent, language, text) in enumerate(found, 1):
            lines = (line.removeprefix(indent) for line in text.splitlines())
            yield Block(str(page.relative_to(ROOT)), number, language, "\n".join(lines) + "\n")


BLOCKS = list(_blocks())


def _in(language: str) -> Any:
    mine = [block for block in BLOCKS if block.language == language]
    return pytest.mark.parametrize("block", mine, ids=[f"{block.page}-{block.number}" for block in mine])


def _module(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text, name, "exec", dont_inherit=True), vars(module))  # noqa: S102 - our own page
    return module


@_in("python")
def test_each_python_block_runs_by_itself(block: Block, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is left to the reader, but for the module that the README's first block is."""
    if block.page == "README.md":
        _module("billing", next(one.text for one in BLOCKS if one.language == "python"), monkeypatch)
    if block.page == "docs/dead-letters.md":
        dead(database, database.link(), 1, "card_declined")
    with_driver = database.driver_url("psycopg").render_as_string(hide_password=False)
    text = ADDRESS.sub(lambda found: with_driver if found[1] else database.url, block.text)
    ran = _module(f"block_{block.number}", text, monkeypatch)
    for engine in (value for value in vars(ran).values() if isinstance(value, sa.Engine)):
        database.keep(engine)


@_in("sql")
def test_each_sql_block_runs_on_tables_of_this_release(block: Block, database: Database) -> None:
    """Each statement is accepted, and does no harm where its work is done already."""
    if "GRANT" in block.text:
        return  # run, and held to be the least, by the tests of the roles
    for statement in block.text.split(";"):
        database.rows(statement)


def _commands(block: Block) -> Iterator[list[str]]:
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.partition(" | ")[0], comments=True)
        if words[:1] == ["outbox"]:
            yield ["x" if word == "TOKEN" else re.sub(r"^(ID|JOB)(\.\.\.)?$", str(uuid4()), word) for word in words[1:]]


def _parsed(words: list[str]) -> click.Context:
    """Return the context of the last command, with all that was given read as its options and arguments."""
    context = cli.make_context("outbox", list(words))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest and context.command.invoke_without_command:
            break
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


@_in("sh")
def test_each_shell_block_names_commands_and_options_that_exist(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line that begins with `outbox` would be taken, with nothing that is required left out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "charge.json").write_text('{"id": "ch_1"}')
    for words in _commands(block):
        try:
            _parsed(words)
        except click.exceptions.Exit:
            pass
        except click.ClickException as error:
            pytest.fail(f"{block.page}: outbox {shlex.join(words)}: {error.format_message()}")


def test_the_text_names_commands_and_options_that_exist() -> None:
    """Each `outbox …` within a sentence is a command, with options of its own or of the root."""
    wrong = []
    for page in PAGES:
        for text in re.findall(r"`outbox ([a-z][^`]*)`", page.read_text(encoding="utf-8")):
            command: click.Command = cli
            words = text.split()
            while words and isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", words[0]):
                found = command.get_command(click.Context(command), words.pop(0))
                if found is None:
                    wrong.append(f"{page.name}: outbox {text}")
                    break
                command = found
            known = {option for one in (cli, command) for parameter in one.params for option in parameter.opts}
            given = {option for word in words for option in re.findall(r"--[a-z-]+", word)}
            wrong += [f"{page.name}: outbox {text}" for option in given - known]
    assert wrong == []


@_in("toml")
def test_each_toml_block_is_a_file_that_is_taken(block: Block, tmp_path: Path) -> None:
    """Its keys are settings, or it is a key file as soon as secrets stand in it."""
    file = tmp_path / "a.toml"
    secret = iter(range(1, 100))
    text = re.sub("…", lambda _: base64.b64encode(bytes([next(secret)]) * 32).decode(), block.text)
    file.write_text(text)
    file.chmod(0o600)
    if "digest_key" in tomllib.loads(text):
        load_keys(file)
    else:
        load(file, env={})


def test_every_block_is_of_a_language_that_is_run_here() -> None:
    """A block of another kind shows what can't be run: an output or a picture."""
    assert {block.language for block in BLOCKS} <= {"python", "sql", "sh", "toml", "text", "mermaid"}
