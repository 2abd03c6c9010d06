"""The dashboards and the queries in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASHBOARDS = sorted((Path(__file__).parents[2] / "compose" / "grafana" / "dashboards").glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    """Return one dashboard."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def queries(path: Path) -> Iterator[tuple[str, str]]:
    """Return each panel's title with each of its queries, Grafana's variables set to what shows all."""
    for panel in load(path)["panels"]:
        for target in panel.get("targets", ()):
            text: str = target["expr"].replace("$__rate_interval", "1m")
            yield panel["title"], re.sub(r"\$(namespace|queue|instance)", ".*", text)
