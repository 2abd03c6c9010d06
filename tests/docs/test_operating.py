"""The operating guide quotes what the program really says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import outbox
from outbox import set_queue, set_tenant
from outbox.cli.queue_limits import set_command, set_tenant_command
from outbox.database.trouble import AGAIN, Fault
from outbox.explaining.reasons import NO_HANDLER

SOURCE = Path(outbox.__file__).parent
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [fault.value.partition(";")[0] for fault in Fault] + [AGAIN, NO_HANDLER],
)
def test_events_are_quoted_as_they_are(text: str) -> None:
    """Each kind of database trouble stands in the guide in the log's own words."""
    assert text in GUIDE


def test_the_audit_s_table_has_each_action() -> None:
    """What a statement or a program writes into the audit, whole or begun, stands in the guide's table of it."""
    table = GUIDE.partition("## The audit\n")[2].partition("\n## ")[0]
    writers = [text for path in SOURCE.rglob("*.sql") if "INTO {schema}.audit (" in (text := path.read_text("utf-8"))]
    found = {action for text in writers for action in re.findall(r"'([a-z]+\.[a-z_]*)'", text)}
    for path in SOURCE.rglob("*.py"):
        found.update(re.findall(r'"action": f?"([a-z]+\.[a-z_]*)', path.read_text("utf-8")))
    assert {"job.cancel", "limits.set", "redrive.", "schedule."} <= found
    assert [action for action in sorted(found) if f"`{action}" not in table] == []


def test_the_table_of_limits_has_each_by_its_names() -> None:
    """As the commands and the functions call them, none left out."""
    table = GUIDE.partition("| `queues set` | `set_queue` |")[2].partition("\n\n")[0]
    rows = [[cell.strip().strip("`") for cell in line.split("|")[1:5]] for line in table.splitlines()[2:]]
    asked = {"target", "queue", "tenant", "by", "reason", "schema"}
    for option, keyword, command, function in ((0, 1, set_command, set_queue), (2, 3, set_tenant_command, set_tenant)):
        options = {flag for one in command.params for flag in one.opts if flag.startswith("--")}
        assert {row[option] for row in rows} - {""} == options - {"--by", "--reason", "--json", "--help"}
        assert {row[keyword] for row in rows} - {""} == set(inspect.signature(function).parameters) - asked
