"""The runbooks: each is rehearsed, and each command on a page is one that there is. `make rehearse` follows them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from outbox.cli.root import cli
from rehearse.pages import FOLDER, commands_of, sections, slugs
from rehearse.rehearsals import play_of

_JOB = "01a22a2c-0000-7000-8000-000000000000"
_VALUES = {"JOB": _JOB, "OTHER": _JOB, "TOKEN": "abc", "KIND": "shop.charge", "CODE": "KeyError", "QUEUE": "charges"}
_ROOT = Path(__file__).parents[2]


def test_every_page_is_rehearsed_and_listed() -> None:
    """A page without a rehearsal, or one that the first page lacks, would be a promise that nobody has tried."""
    first = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(([a-z-]+)\.md\)", first)) == slugs()
    plays = {path.stem.replace("_", "-") for path in (_ROOT / "tests" / "rehearse" / "plays").glob("[a-z]*.py")}
    assert plays == {*slugs()}


@pytest.mark.parametrize("slug", slugs())
def test_a_rehearsal_goes_by_its_page(slug: str) -> None:
    """What a rehearsal sees, copies and does belongs to a section that is on the page."""
    play = play_of(slug)
    headings = [section.heading for section in sections(slug)]
    assert {*play.sees, *play.learns, *play.acts} <= {*headings}
    assert headings[0] == "Look"
    assert any(heading.startswith("Check") for heading in headings)


@pytest.mark.parametrize("slug", ["README", *slugs()])
def test_every_command_of_a_page_parses(slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options are there, and those that are required are given."""
    monkeypatch.chdir(tmp_path)
    for own in ("patch.json", "result.json"):  # a page's own files, which options read
        (tmp_path / own).write_text("{}")
    for line in commands_of(slug):
        if line.startswith("outbox "):
            _parse(re.sub(r"\$(\w+)", lambda found: _VALUES.get(found[1], "ada"), line.split(" || ")[0]))


def _parse(line: str) -> None:
    arguments, parent, command = shlex.split(line)[1:], None, cli
    name = "outbox"
    while True:
        context = command.make_context(name, arguments, parent=parent)
        rest = [*getattr(context, "_protected_args", ()), *context.args]  # click 8 keeps the first apart
        if not isinstance(command, click.Group) or not rest:
            return
        name, command, arguments = command.resolve_command(context, rest)
        parent = context
        assert command is not None, line


def test_pages_and_alerts_name_each_other() -> None:
    """An alert leads to a page that names it, and a page names no alert that there isn't."""
    rules = (_ROOT / "compose" / "prometheus" / "rules" / "alerts.yml").read_text(encoding="utf-8")
    leads = dict(re.findall(r"alert: (\w+)\n.*?runbook: docs/runbooks/([a-z-]+)\.md", rules, re.DOTALL))
    named = {
        alert: slug
        for slug in slugs()
        for alert in re.findall(r"`(Outbox[A-Z]\w+)`", (FOLDER / f"{slug}.md").read_text(encoding="utf-8"))
    }
    assert set(leads.values()) <= {*slugs()}
    assert {alert: leads.get(alert) for alert in named} == named
    assert set(leads) == set(re.findall(r"alert: (\w+)", rules))
