"""Figures as text that Prometheus reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outbox.telemetry.contract import Kind, prometheus_name
from outbox.telemetry.series import Family, Labels

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(families: Iterable[Family]) -> str:
    """Return the text. What has no value yet has no line."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    one = family.metric
    if not (family.values or family.buckets):
        return
    name = prometheus_name(one)
    yield f"# HELP {name} {one.about}"
    yield f"# TYPE {name} {one.kind}"
    for labels, value in sorted(family.values.items()):
        yield f"{name}{_braced(one.labels, labels)} {_number(value)}"
    if one.kind is not Kind.HISTOGRAM:
        return
    bounds = (*map(_number, one.bounds), "+Inf")
    for labels, buckets in sorted(family.buckets.items()):
        counts = buckets.cumulated()
        for bound, count in zip(bounds, counts, strict=True):
            yield f"{name}_bucket{_braced((*one.labels, 'le'), (*labels, bound))} {count}"
        yield f"{name}_sum{_braced(one.labels, labels)} {_number(buckets.total)}"
        yield f"{name}_count{_braced(one.labels, labels)} {counts[-1]}"


def _braced(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    # What a line of this format can't hold; everything else, a lone surrogate too, is made bytes by the port.
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
