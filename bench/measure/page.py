"""`docs/performance.md` from its template and the kept figures."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from measure import tables
from measure.store import figures_of
from measure.targets import evaluate, measured

_TEMPLATE = Path(__file__).with_name("performance.md.in")
SUITES = ("ours", "peers", "horizon", "scale")


def write(docs: Path, suites: dict[str, Any]) -> Path:
    """Write the page and return its path."""
    values: dict[str, str] = {}
    for suite in SUITES:
        figures = figures_of(suites, suite)
        values[f"{suite}_when"] = _when(suites.get(suite))
        values[f"{suite}_rows"] = tables.verdicts(measured(evaluate(figures)))
        values[f"{suite}_figures"] = tables.own(figures)
        values[f"{suite}_settings"] = tables.settings(suites.get(suite, {}))
    values["peers_table"] = tables.side_by_side(figures_of(suites, "peers"))
    values["pictures"] = "\n".join(
        f"![{path.stem.replace('_', ' ')}](figures/{path.name})" for path in sorted((docs / "figures").glob("*.png"))
    )
    values["peers_cpu"] = tables.side_by_side(figures_of(suites, "peers"), tables.CPU_COLUMNS)
    path = docs / "performance.md"
    path.write_text(Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
    return path


def _when(suite: dict[str, Any] | None) -> str:
    if suite is None:
        return "Not run yet on this machine."
    machine = suite["machine"]
    return (
        f"Run on {suite['date']}, {suite['runs']} round{'s' if suite['runs'] > 1 else ''}: {machine['cores']} cores "
        f"({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']} {machine['architecture']}, Python "
        f"{machine['python']}, PostgreSQL {machine['postgresql']}, RabbitMQ {machine['rabbitmq']}."
    )
