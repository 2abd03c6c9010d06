"""Every event that our processes log: its text, levels, logger, fields and meaning, in one table. docs/telemetry.md is
made from it.

The text of an event is constant, so that it can be counted and searched. A field has one name and one meaning wherever
it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from outbox.telemetry.contract import CONSUMER_EVENTS, CONSUMER_HINTS, RELAY_HINTS, RELAY_MOVES
from outbox.telemetry.event_rows import ROWS
from outbox.tracing.contract import Attr

__all__ = ["ALWAYS", "AS_IN_SPANS", "COUNTS", "EVENTS", "FIELDS", "Event", "event"]

ALWAYS = ("at", "level", "logger", "event")
"""What every line has."""

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "at": "when, by the clock of the process's machine: RFC 3339 in UTC, to the millisecond",
        "level": "`debug`, `info`, `warning`, `error` or `critical`",
        "logger": "who: `outbox.relay`, `outbox.consumer` and so on",
        "event": "the event's text",
        "error": "the masked traceback, where there is one, of about 16,000 characters at most",
        "job_id": "the job",
        "attempt": "the attempt's number",
        "kind": "the kind of job",
        "queue": "the queue",
        "trace_id": "the trace of the span that is open here, 32 hexadecimal digits, where spans are recorded",
        "span_id": "that span, 16 digits",
        "suppressed": "how many such events were left out since the last that was logged",
        "address": "where the port listens",
        "attempts": "how often it has been tried without success, by now",
        "blocked": "whether the broker blocks publishers",
        "broker": "whether a broker is named in the settings",
        "code": "the code of an attempt's failure",
        "concurrency": "the number of slots",
        "count": "how many",
        "did_you_mean": "known names like it",
        "dropped": "how many spans this exporter has dropped, by now",
        "effect": "the effect's name",
        "exporter": "where spans or figures go",
        "figure": "the metric's name",
        "first": "the id of the first of them",
        "grace_s": "how long the end may take, in seconds",
        "hints": "how many hints may be out",
        "host": "the server's host",
        "jobs": "how many jobs",
        "key_id": "the name of a key that seals payloads",
        "kinds": "the kinds of job that run here, with commas",
        "loop": "which loop or thread of the process",
        "messages": "how many messages",
        "next_in_s": "when it is tried again, in seconds",
        "out": "how many hints are out",
        "pid": "the number of a handler's process",
        "port": "the server's port",
        "queues": "the queues, with commas",
        "reason": "why: class and text of an error, masked and cut, without what a row holds",
        "remedy": "what to do",
        "remote_request_id": "what the other side called the request",
        "reply": "the broker's words",
        "running": "how many attempts run",
        "schedule": "the schedule's name",
        "schema": "the schema of the tables",
        "signal": "what was to go there: traces or metrics",
        "spans": "how many spans",
        "taken_per_s": "hints taken a second",
        "vhost": "the broker's virtual host",
        "wait_s": "in how many seconds the job may run again",
        "wanted": "the arguments with which a queue was to be declared",
        "what": "what was done or asked",
        "worker": "the name of this process in the history of jobs and in `outbox consumers`",
    }
)

AS_IN_SPANS: Mapping[str, Attr] = MappingProxyType(
    {
        "job_id": Attr.JOB_ID,
        "attempt": Attr.ATTEMPT,
        "kind": Attr.KIND,
        "queue": Attr.QUEUE,
        "effect": Attr.EFFECT,
        "code": Attr.ERROR,
    }
)
"""What a field is called as an attribute of spans."""

COUNTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "relay": (*RELAY_HINTS, *RELAY_MOVES),
        "consumer": (*(f"hints_{name}" for name in CONSUMER_HINTS), *CONSUMER_EVENTS),
    }
)
"""By process, the fields of an event that tells all its sums since its start."""

_ANYWHERE = frozenset({*ALWAYS, "error", "job_id", "attempt", "kind", "queue", "trace_id", "span_id", "suppressed"})


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `logger`: whose it is, or of one of what stands below it in dots. `fields`: those of its own; not each
    of its lines has all of them. `counts`: it has the sums of that process, too.
    """

    text: str
    levels: tuple[str, ...]
    logger: str
    fields: tuple[str, ...]
    about: str
    counts: str | None = None

    def allows(self, field: str) -> bool:
        """Tell whether a line of this event may have a field. Pure."""
        return field in self.fields or field in _ANYWHERE or field in COUNTS.get(self.counts or "", ())


def _event(row: tuple[str, str, str, str, str]) -> Event:
    text, levels, logger, fields, about = row
    names = tuple(fields.split())
    counts = next((name.removeprefix("sums:") for name in names if name.startswith("sums:")), None)
    own = tuple(name for name in names if not name.startswith("sums:"))
    return Event(text, tuple(levels.split()), logger, own, about, counts)


EVENTS: tuple[Event, ...] = tuple(map(_event, ROWS))

_BY_TEXT = {one.text: one for one in EVENTS}


def event(text: str) -> Event:
    """Return an event by its text. Raises `KeyError` for one that is not in the table."""
    return _BY_TEXT[text]
