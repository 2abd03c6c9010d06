"""The dashboards: what Grafana needs of them, and queries that name what processes show."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from outbox.telemetry.contract import LABELS
from support.composing import COMPOSE
from support.dashboards import DASHBOARDS, load, queries
from support.prometheus import recorded
from support.promql import TARGET_LABELS, labels_named, misnamed, selectors


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.stem)
def path(request: Any) -> Path:
    """Return each dashboard's file."""
    found: Path = request.param
    return found


def test_its_queries_name_what_the_table_of_telemetry_has(path: Path) -> None:
    """Metrics, labels and values; each panel has a title, and says what it shows."""
    names = recorded()
    for title, query in queries(path):
        assert "$" not in query, title
        assert [wrong for one in selectors(query) for wrong in misnamed(one, names)] == [], title
        assert labels_named(query) <= LABELS.keys() | TARGET_LABELS | {"le"}, title


def test_grafana_finds_all_that_it_needs(path: Path) -> None:
    """Ids of its own, variables for what the queries use, and panels that lie beside each other, not on each other."""
    board = load(path)
    assert board["uid"] == path.stem
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    known = {variable["name"] for variable in board["templating"]["list"]}
    assert {"source", "namespace"} <= known
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"]
        assert all(target["datasource"]["uid"] == "${source}" for target in panel.get("targets", ()))
        box = panel["gridPos"]
        assert box["x"] + box["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


def test_the_compose_file_hands_them_to_grafana() -> None:
    """Where the provider looks is where they are mounted."""
    provider = (COMPOSE / "grafana" / "provisioning" / "dashboards" / "outbox.yml").read_text()
    mounted = "./grafana/dashboards:/var/lib/grafana-dashboards:ro"
    assert mounted in (COMPOSE / "compose.yaml").read_text()
    assert "path: /var/lib/grafana-dashboards" in provider
