"""The span of a submission, made by whatever tracer the submitting service has set up, and the context that is stored
with the job.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from outbox.tracing.context import current_trace, key_hash, loaded_api, stored
from outbox.tracing.contract import SUBMIT, Attr
from outbox.tracing.tracer import OpenSpan, Tracing, Value

__all__ = ["submitted"]

_Refs = TypeVar("_Refs")
_SCOPE = "outbox"


class Named(Protocol):
    """What a span tells of a job that is submitted."""

    @property
    def kind(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def logical_key(self) -> str: ...


def submitted(
    jobs: Sequence[Named],
    tenant: str,
    write: Callable[[str], _Refs],
    created: Callable[[_Refs], Sequence[tuple[str, bool]]],
) -> _Refs:
    """Have jobs written, within a span where this service traces.

    Args:
        write: writes them, with the text of the trace context that each shall carry; empty: none.
        created: returns of what was written each job's id, and whether it is new.
    """
    if loaded_api() is None:  # nearly every service; the rest would cost each of them
        return write("")
    span = _opened(jobs, tenant)
    if span is None:
        here = current_trace()
        return write("" if here is None else stored(here))
    with span.around():
        refs = write("" if span.trace is None else stored(span.trace))
        with suppress(Exception):
            found = created(refs)
            span.set(
                {Attr.CREATED: sum(new for _, new in found)} | ({Attr.JOB_ID: found[0][0]} if len(found) == 1 else {})
            )
        return refs


def _opened(jobs: Sequence[Named], tenant: str) -> OpenSpan | None:
    """Begin a span under the one in which this code runs; None where nothing is recorded."""
    if "opentelemetry.sdk.trace" not in sys.modules:  # the API alone records nothing
        return None
    try:
        here = loaded_api().get_current_span()
        tracer = loaded_api().get_tracer(_SCOPE)
        within = here.get_span_context().is_valid
        if within and not here.is_recording():  # nor does what stands under a span that is left out
            return None
        under = OpenSpan(here) if within else None
    except Exception:  # noqa: BLE001 - what others have plugged in must not cost a job
        return None
    first = jobs[0]
    attributes: dict[Attr, Value] = {
        Attr.SYSTEM: "outbox",
        Attr.OPERATION: "submit",
        Attr.OPERATION_TYPE: "create",
        Attr.QUEUE: first.queue,
        Attr.KIND: first.kind,
        Attr.MESSAGES: len(jobs),
    }
    if len(jobs) == 1:
        attributes |= {Attr.VERSION: first.version, Attr.KEY_HASH: key_hash(tenant, first.kind, first.logical_key)}
    return Tracing(tracer, per_s=1).open(SUBMIT, first.queue, attributes, under=under)
