"""`outbox jobs show --tree`: a workflow as lines, each job under the one that it follows from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from uuid import UUID

from outbox.cli.output import connect, instant, show
from outbox.errors import JobNotFound
from outbox.reading.jobs import job_tree
from outbox.settings import Settings
from outbox.texts.masking import printable
from outbox.texts.wording import counted
from outbox_schemas import TreeView

__all__ = ["show_tree", "tree_lines"]

_LIMIT = 1000
_LINE = 300


def show_tree(settings: Settings, job_id: UUID) -> None:
    """Show the workflow of a job. Raises `JobNotFound`."""
    with connect(settings) as link:
        found = job_tree(link, job_id, limit=_LIMIT + 1)
    if not found:
        raise JobNotFound(job_id)
    shown, complete = found[:_LIMIT], len(found) <= _LIMIT
    show({"tree": shown, "complete": complete}, lambda: tree_lines(shown, job_id, complete=complete))


def tree_lines(nodes: Sequence[TreeView], asked: UUID, *, complete: bool) -> Iterator[str]:
    """Return a line for each job, parents before their children; `asked` is marked. Pure."""
    children: dict[UUID | None, list[TreeView]] = defaultdict(list)
    for node in nodes[1:]:
        children[node.parent_id].append(node)
    waiting = list(nodes[:1])
    while waiting:
        node = waiting.pop()
        yield "  " * node.level + printable(f"{'*' if node.id == asked else '-'} {_line(node)}", _LINE)
        waiting += reversed(children[node.id])
    if not complete:
        yield f"… and more: only {len(nodes)} jobs are shown"


def _line(node: TreeView) -> str:
    state = f"{node.state} ({node.last_error_code})" if node.state == "failed" else str(node.state)
    parts = [f"{node.kind} {node.logical_key}: {state}, {counted(node.attempt_count, 'attempt')}"]
    if node.waits_until is not None and node.waited_until is None:
        left = "" if node.waits_left is None else f" ({node.waits_left} left)"
        parts.append(f"waits until {node.waits_for} jobs have {node.waits_until}{left}")
    if node.finished_at is not None:
        parts.append(f"ended {instant(node.finished_at)}")
    return f"{', '.join(parts)}  {node.id}"
