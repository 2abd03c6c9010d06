"""W3C trace contexts: read from whatever brings one, strictly and within bounds; written to a job's row and a hint.

A context only says where a span stands. One that is hostile, too long or none at all is dropped, and nothing that a job
does depends on it. Baggage is not carried: it may hold anything.
"""

from __future__ import annotations

import json
import re
import sys
from hashlib import blake2b
from typing import Any, NamedTuple

__all__ = ["Trace", "current_ids", "current_trace", "key_hash", "loaded_api", "read_header", "read_stored", "stored"]

_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
# Printable ASCII without blanks at the ends; whether its entries are well-formed is the vendor's affair.
_STATE = re.compile(r"[!-~](?:[ -~]{0,510}[!-~])?")
_MOST_STORED = 2048


class Trace(NamedTuple):
    """Where a span stands. `state`: its vendors' own words (W3C `tracestate`), up to 512 characters, or empty. `age_s`:
    how old it was when the job was claimed; None: not known.
    """

    trace_id: int
    span_id: int
    flags: int
    state: str = ""
    age_s: float | None = None

    @property
    def parent(self) -> str:
        """The W3C `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def loaded_api() -> Any:
    """Return OpenTelemetry's API of traces if this process has loaded it; None: nobody here traces, and asking has cost
    next to nothing.
    """
    return sys.modules.get("opentelemetry.trace")


def read_header(parent: object, state: object = "") -> Trace | None:
    """Return a context from what a header holds; None for what is none. A bad `tracestate` alone is left out."""
    if not isinstance(parent, str):
        return None
    found = _PARENT.fullmatch(parent)
    if found is None:
        return None
    trace_id, span_id = int(found[1], 16), int(found[2], 16)
    if not (trace_id and span_id):
        return None
    kept = state if isinstance(state, str) and _STATE.fullmatch(state) else ""
    return Trace(trace_id, span_id, int(found[3], 16), kept)


def read_stored(text: str | None) -> Trace | None:
    """Return the context in a job's row, as the claim reads it; None where there is none, or what is none: anybody may
    have written there.
    """
    if text is None or len(text) > _MOST_STORED:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found = read_header(document.get("traceparent"), document.get("tracestate", ""))
    age_s = document.get("age_s")
    if found is None or isinstance(age_s, bool) or not isinstance(age_s, int | float):
        return found
    try:
        return found._replace(age_s=float(age_s))
    except OverflowError:  # an integer of hundreds of digits
        return found


def stored(trace: Trace) -> str:
    """Return a context as a job's row holds it: JSON in ASCII."""
    return json.dumps({"traceparent": trace.parent} | ({"tracestate": trace.state} if trace.state else {}))


def current_trace() -> Trace | None:
    """Return where the span stands in which this code runs; None: in none, or OpenTelemetry is not loaded. Never
    raises: what others have plugged in there must not cost a job.
    """
    api = loaded_api()
    if api is None:
        return None
    try:
        return trace_of(api.get_current_span().get_span_context())
    except Exception:  # noqa: BLE001 - as above
        return None


def trace_of(context: Any) -> Trace | None:
    """Return OpenTelemetry's context of a span as one of ours; None for one that is not valid."""
    if not context.is_valid:
        return None
    state = context.trace_state.to_header() if context.trace_state else ""
    kept = state if state and _STATE.fullmatch(state) else ""
    return Trace(context.trace_id, context.span_id, int(context.trace_flags) & 255, kept)


def current_ids() -> tuple[str, str] | None:
    """Return the ids of the trace and the span in which this code runs, in hexadecimal digits, for a log record; None:
    in none. On the thread or task of an attempt that is traced they are those of its span.
    """
    found = current_trace()
    return None if found is None else (f"{found.trace_id:032x}", f"{found.span_id:016x}")


def key_hash(tenant: str, kind: str, logical_key: str) -> str:
    """Return 16 hexadecimal digits that stand for a logical key in its scope."""
    text = "\x1f".join((tenant, kind, logical_key))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
