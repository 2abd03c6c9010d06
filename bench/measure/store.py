"""The figures of one machine shape, kept in `docs/figures/SHAPE.json`: the last run of each suite."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measure.figures import Figures
from measure.machine import describe, shape
from measure.run import Run

DOCS = Path(__file__).resolve().parents[2] / "docs"


def path_of(docs: Path) -> Path:
    """Return the file of this machine's shape."""
    return docs / "figures" / f"{shape()}.json"


def load(docs: Path) -> dict[str, Any]:
    """Return the suites that the file holds, {} without a file."""
    path = path_of(docs)
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def load_committed() -> dict[str, Any]:
    """Return the suites that the last commit holds for this shape; or those of the file if there are none."""
    name = path_of(DOCS).relative_to(DOCS.parent)
    shown = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=DOCS.parent, capture_output=True, check=False)
    return dict(json.loads(shown.stdout)) if shown.returncode == 0 else load(DOCS)


def entry(run: Run) -> dict[str, Any]:
    """Return a run as it is kept."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "runs": run.options.runs,
        "machine": describe(run.arena),
        "contenders": run.contenders,
        "figures": run.figures.to_json(),
        "wrong": run.wrong,
    }


def save(docs: Path, suites: dict[str, Any]) -> Path:
    """Write the file and return its path."""
    path = path_of(docs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(suites, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def figures_of(suites: dict[str, Any], suite: str) -> Figures:
    """Return the figures of one suite, none if it was never run."""
    return Figures.from_json(suites.get(suite, {}).get("figures", {}))
