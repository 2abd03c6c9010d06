"""Reading queries: which series they name, and whether there are such series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import promql_parser

from outbox.telemetry.contract import LABELS, METRICS, Kind, Metric, prometheus_name

# What Prometheus puts to every series, and `namespace`, by which deployments are kept apart.
TARGET_LABELS = frozenset({"job", "instance", "namespace"})
_OPERATORS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}
_ENDS = {"_bucket", "_sum", "_count"}
_SERIES = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?")
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Selector:
    """A metric's name in a query, with what is asked of its labels: name, operator, value."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def meets(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a series with these labels is meant."""
        return all(_meets(labels.get(name, ""), operator, value) for name, operator, value in self.matchers)


def _meets(found: str, operator: str, value: str) -> bool:
    matches = re.fullmatch(value, found) is not None if "~" in operator else found == value
    return matches is not operator.startswith("!")


def parts(query: str) -> Iterator[promql_parser.Expr]:
    """Return every part of a query. Raises ValueError for one that is not PromQL."""
    found: list[promql_parser.Expr] = []
    promql_parser.walk(promql_parser.parse(query), found.append)
    yield from found


def selectors(query: str) -> list[Selector]:
    """Return what a query selects."""
    return [_selector(part) for part in parts(query) if isinstance(part, promql_parser.VectorSelector)]


def _selector(part: promql_parser.VectorSelector) -> Selector:
    asked = tuple((one.name, _OPERATORS[str(one.op)], one.value) for one in part.matchers.matchers)
    assert part.name, part
    return Selector(part.name, asked)


def labels_named(query: str) -> set[str]:
    """Return the labels by which a query sums up or joins."""
    named: set[str] = set()
    for part in parts(query):
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier is not None:
            named.update(part.modifier.labels)
        if isinstance(part, promql_parser.BinaryExpr) and part.modifier is not None:
            named.update(part.modifier.group_labels or ())
            if part.modifier.matching is not None:
                named.update(part.modifier.matching.labels)
    return named


def series(line: str) -> tuple[str, dict[str, str]]:
    """Return name and labels of a series as they stand in an exposition or a test of rules."""
    found = _SERIES.fullmatch(line)
    assert found, line
    return found[1], dict(_PAIR.findall(found[2] or ""))


def metric_of(name: str) -> Metric | None:
    """Return the metric of the contract to which a series belongs by its name; None: to none."""
    for one in METRICS:
        base = prometheus_name(one)
        if name == base if one.kind is not Kind.HISTOGRAM else name.removeprefix(base) in _ENDS:
            return one
    return None


def misnamed(selector: Selector, recorded: Iterable[str] = ()) -> list[str]:
    """Return what a selector names that the contract doesn't know: metrics, labels, values of closed labels."""
    if selector.name in {"up", "ALERTS", *recorded}:
        return []
    one = metric_of(selector.name)
    if one is None:
        return [selector.name]
    known = {*one.labels, *TARGET_LABELS, *({"le"} if selector.name.endswith("_bucket") else ())}
    wrong = [f"{selector.name}: {name}" for name, _, _ in selector.matchers if name not in known]
    for name, operator, value in selector.matchers:
        closed = LABELS[name].values if name in one.labels else None
        asked = value.split("|") if "~" in operator else [value]
        if closed is not None and "$" not in value:
            wrong += [f"{selector.name}: {name}={word}" for word in asked if word not in closed]
    return wrong
