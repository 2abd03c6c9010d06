"""The page of all that is shown, made from the tables that the code goes by; `python tests/support/telemetry_page.py`
writes it.
"""

from __future__ import annotations

from pathlib import Path

from outbox.settings.telemetry import TelemetrySettings
from outbox.telemetry.contract import LABELS, METRICS, Kind, Metric, most_series, prometheus_name
from outbox.telemetry.events import AS_IN_SPANS, COUNTS, EVENTS, FIELDS, Event
from outbox.tracing.contract import ATTRIBUTES, SPANS, SpanTerms

PAGE = Path(__file__).resolve().parents[2] / "docs" / "telemetry.md"
TEXT = Path(__file__).with_name("telemetry_page.md")


def page() -> str:
    """Return the page as it has to stand: the text beside this file, with its tables."""
    text = TEXT.read_text(encoding="utf-8").replace("{events}", _events()).replace("{fields}", _fields())
    text = text.replace("{spans}", _spans()).replace("{attributes}", _attributes())
    return text.replace("{metrics}", _metrics()).replace("{labels}", _labels()).replace("{most}", _most())


def _spans() -> str:
    head = "| span | kind | by | under | linked to | always has | may have | |\n|---|---|---|---|---|---|---|---|\n"
    return head + "\n".join(map(_span_row, SPANS))


def _span_row(one: SpanTerms) -> str:
    always, sometimes = (", ".join(f"`{name}`" for name in names) for names in (one.always, one.sometimes))
    named = f"{one.name} {{{one.of}}}" if one.of else one.name
    cells = (f"`{named}`", one.kind, one.by, one.parent, one.links, always, sometimes, one.about)
    return f"| {' | '.join(cells)} |"


def _attributes() -> str:
    rows = [f"| `{name}` | {about.text} | {about.values} |" for name, about in ATTRIBUTES.items()]
    return "| attribute | | values |\n|---|---|---|\n" + "\n".join(rows)


def _metrics() -> str:
    head = (
        "| metric | in Prometheus | type | unit | labels | series | shown by | |\n|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(_row(one) for one in METRICS)


def _row(one: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    about = one.about
    if one.kind is Kind.HISTOGRAM:
        about += f"; buckets up to {', '.join(f'{bound:g}' for bound in one.bounds)}"
    series = most_series(one, names())
    return (
        f"| `{one.name}` | `{prometheus_name(one)}` | {one.kind} | `{one.unit}` | {labels} | {series} | {one.by} |"
        f" {about} |"
    )


def _labels() -> str:
    rows = []
    for name, label in LABELS.items():
        values = "open" if label.values is None else ", ".join(f"`{value}`" for value in label.values)
        rows.append(f"| `{name}` | {label.about} | {values} |")
    return "| label | | values |\n|---|---|---|\n" + "\n".join(rows)


def _events() -> str:
    head = "| event | level | logger | fields | |\n|---|---|---|---|---|\n"
    return head + "\n".join(_event_row(one) for one in EVENTS)


def _event_row(one: Event) -> str:
    fields = ", ".join(f"`{field}`" for field in one.fields)
    if one.counts is not None:
        fields = f"the {len(COUNTS[one.counts])} sums of a {one.counts}"
    return f"| {one.text} | {', '.join(one.levels)} | `{one.logger}` | {fields} | {one.about} |"


def _fields() -> str:
    head = "| field | | in spans |\n|---|---|---|\n"
    return head + "\n".join(f"| `{name}` | {about} | {_in_spans(name)} |" for name, about in FIELDS.items())


def _in_spans(field: str) -> str:
    return f"`{AS_IN_SPANS[field].value}`" if field in AS_IN_SPANS else ""


def _most() -> str:
    sums = {
        process: sum(most_series(one, names()) for one in METRICS if process in one.by)
        for process in ("relay", "consumer")
    }
    return f"{sums['relay']} of a relay and {sums['consumer']} of a consumer"


def names() -> int:
    """Return how many names of an open label are shown unless it is set."""
    return TelemetrySettings().names


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
