"""The alerts: they name what the processes show, each has been seen to fire and to be silent, and says what to do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from outbox.telemetry.contract import LABELS
from support.prometheus import HOME, RULES, TESTS, alerts, program, recorded, rules, situations
from support.promql import TARGET_LABELS, Selector, labels_named, misnamed, selectors, series

ROOT = Path(__file__).parents[2]
FIRING = 'ALERTS{alertstate="firing"}'


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_names_what_the_table_of_telemetry_has(rule) -> None:
    """Metrics, labels and values; a query that names anything else would be silent for ever."""
    names = recorded()
    assert [wrong for one in selectors(rule["expr"]) for wrong in misnamed(one, names)] == []
    assert labels_named(rule["expr"]) <= LABELS.keys() | TARGET_LABELS | {"le"}


def test_a_name_that_is_not_there_is_found() -> None:
    """The check above sees a metric, a label and a value that nobody shows."""
    assert misnamed(Selector("outbox_relay_moves", ())) == ["outbox_relay_moves"]
    assert misnamed(Selector("outbox_pauses", (("queue", "=", "q"),))) == ["outbox_pauses: queue"]
    asked = (("move", "=~", "recovered_leases|mislaid"),)
    assert misnamed(Selector("outbox_relay_moves_total", asked)) == ["outbox_relay_moves_total: move=mislaid"]


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    """A severity, two sentences and a runbook that is there."""
    alert = alerts()[name]
    assert alert["labels"].keys() == {"severity"}
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    page = ROOT / alert["annotations"]["runbook"]
    assert page.parent == ROOT / "docs" / "runbooks"
    assert page.exists()


@pytest.mark.parametrize("name", alerts())
def test_an_alert_fires_somewhere_and_is_silent_beside(name: str) -> None:
    """Some situation expects it, and a neighbour is told in which it may not."""
    told = [check for test in situations() for check in test["promql_expr_test"]]
    fired = [sample for check in told for sample in check["exp_samples"] if f'alertname="{name}"' in sample["labels"]]
    assert any('alertstate="firing"' in sample["labels"] for sample in fired)
    assert all(f'severity="{alerts()[name]["labels"]["severity"]}"' in sample["labels"] for sample in fired)
    # All other situations are neighbours of the first.
    silent = [test for test in situations() if name in test["name"] and "silent" in test["name"]]
    assert silent or name == "OutboxNothingScraped"


@pytest.mark.parametrize("name", [name for name, alert in alerts().items() if "for" in alert])
def test_an_alert_that_waits_is_seen_to_wait(name: str) -> None:
    """Some situation expects it pending, which it never is without its `for`; with a shorter one it fires by then."""
    told = [sample for test in situations() for check in test["promql_expr_test"] for sample in check["exp_samples"]]
    assert [one for one in told if f'alertname="{name}"' in one["labels"] and 'alertstate="pending"' in one["labels"]]


def test_the_page_lists_the_alerts() -> None:
    """Each with its severity and its runbook, in the order of the rules."""
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(Outbox\w+)` \| (\w+) \| .+ \| \[.+\]\((runbooks/.+)\) \|$", page, re.MULTILINE)
    assert rows == [
        (name, alert["labels"]["severity"], alert["annotations"]["runbook"].removeprefix("docs/"))
        for name, alert in alerts().items()
    ]


def test_nobody_is_called_where_nothing_is_wrong() -> None:
    """Idle, paused and busy with a long job: no alert at all may fire, which is what these situations ask for."""
    [quiet] = [path for path in TESTS if path.stem == "quiet"]
    assert quiet.exists()
    names = " ".join(test["name"] for test in situations())
    assert all(re.search(word, names) for word in ("idle:", "paused:", "a long job:"))
    quiet_ones = [test for test in situations() if test["name"].startswith(("idle", "paused", "a long job"))]
    for test in quiet_ones:
        assert all(check["expr"] == FIRING and check["exp_samples"] == [] for check in test["promql_expr_test"])


def test_situations_are_made_of_what_processes_show() -> None:
    """A series with a misspelt name or a label too few would prove nothing."""
    for test in situations():
        for given in test["input_series"]:
            name, labels = series(given["series"])
            asked = tuple((label, "=", value) for label, value in labels.items())
            assert misnamed(Selector(name, asked)) == [], given["series"]


def test_prometheus_takes_the_rules_and_they_do_what_they_should() -> None:
    """Prometheus's own checks of rules and of situations."""
    promtool = program("promtool")
    checked = subprocess.run([promtool, "check", "rules", *RULES], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    # Debian's Prometheus knows no Kubernetes, so that the other settings can't be checked by it.
    told = subprocess.run(
        [promtool, "check", "config", HOME / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    tested = subprocess.run(
        [promtool, "test", "rules", *TESTS], cwd=HOME, capture_output=True, text=True, check=False, timeout=100
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
