"""The spans of an attempt that is traced. An attempt that isn't has no trail: whoever works asks for that, and no more.

A trail may be used from any thread. Nothing in it raises because of the tracing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from outbox.tracing.context import Trace, current_trace
from outbox.tracing.contract import APPLY, COMPLETE, EFFECT, HANDLE, RECONCILE, SEND, Attr
from outbox.tracing.tracer import OpenSpan, Tracing, Value

__all__ = ["EffectTrail", "Trail", "applying", "asking", "handling"]

_FAILED = frozenset({"retried", "failed", "lost"})


class Trail:
    """One attempt's spans, from its claim to its end.

    Args:
        process: the attempt's own span.
        job: what each span says of the job.
        kind: the job's, for the names.
    """

    def __init__(self, tracing: Tracing, process: OpenSpan, job: Mapping[Attr, Value], kind: str) -> None:
        self._tracing = tracing
        self._process = process
        self._job = job
        self._kind = kind
        self._handle: OpenSpan | None = None
        self._complete: OpenSpan | None = None
        self._over = False
        self.outcome = "let_go"
        """What has become of the attempt, as far as that is known."""
        self.code = ""
        """The code of its failure."""

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Have the handler run within a span."""
        self._handle = span = self._tracing.open(HANDLE, self._kind, self._job, under=self._process)
        with nullcontext() if span is None else span.around():
            yield

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Have `apply` run within a span. Without an error the attempt has succeeded."""
        span = self._tracing.open(APPLY, self._kind, self._job, under=self._process)
        with nullcontext() if span is None else span.around():
            yield
        self.outcome = "succeeded"

    def effect(self, name: str) -> EffectTrail:
        """Begin the span of a call of an effect: under the span in which its code runs, where that is one of this
        attempt's, else under the handler's.
        """
        here, own = current_trace(), self._process.trace
        under: OpenSpan | Trace | None = self._handle or self._process
        if here is not None and own is not None and here.trace_id == own.trace_id:
            under = here
        return EffectTrail(self._tracing, {**self._job, Attr.EFFECT: name}, under)

    def begin_ending(self) -> OpenSpan | None:
        """Begin the span of an end's writing. It counts once `ending` takes it in, and is never told of otherwise."""
        if self._over:  # the lease was lost meanwhile, and nobody ends another span
            return None
        return self._tracing.open(COMPLETE, self._kind, self._job, under=self._process)

    def ending(self, outcome: str, code: str, span: OpenSpan | None) -> None:
        """Take in which end is decided, and is now to be written. Calls nothing: its caller may hold a lock."""
        if not self._over:
            self.outcome, self.code, self._complete = outcome, code, span

    def end(self, *, is_lost: bool, phase: str, effects: Sequence[str]) -> None:
        """End all that is open: the attempt is not this process's any more. All but the first call are ignored."""
        if self._over:
            return
        self._over = True
        outcome = "lost" if is_lost else self.outcome
        if self._complete is not None:
            self._complete.set({Attr.OUTCOME: outcome})
            self._complete.end()
        found: dict[Attr, Value] = {Attr.OUTCOME: outcome, Attr.PHASE: "done" if outcome == "succeeded" else phase}
        if effects:
            found[Attr.EFFECTS] = tuple(effects)
        self._process.set(found)
        if outcome in _FAILED:
            self._process.fail("lease_lost" if is_lost else self.code or outcome)
        self._process.end()


class EffectTrail:
    """The span of one call of an effect, and of what it asks of user code."""

    def __init__(self, tracing: Tracing, about: Mapping[Attr, Value], under: OpenSpan | Trace | None) -> None:
        self._tracing = tracing
        self._about = about
        self._span = tracing.open(EFFECT, "", about, under=under)

    def around(self) -> AbstractContextManager[None]:
        """Return a block for the call."""
        return nullcontext() if self._span is None else self._span.around()

    def decided(self, step: str) -> None:
        """Take in what is done, given what is on record."""
        self._set({Attr.EFFECT_STEP: step})

    def settled(self, state: str) -> None:
        """Take in the effect's state."""
        self._set({Attr.EFFECT_STATE: state})

    def asking(self, what: str) -> AbstractContextManager[None]:
        """Return a block for `send` or `reconcile`."""
        terms = RECONCILE if what == "reconcile" else SEND
        span = None if self._span is None else self._tracing.open(terms, "", self._about, under=self._span)
        return nullcontext() if span is None else span.around()

    def _set(self, attributes: Mapping[Attr, Value]) -> None:
        if self._span is not None:
            self._span.set(attributes)


def handling(trail: Trail | None) -> AbstractContextManager[None]:
    """Return a block for a handler, traced or not."""
    return nullcontext() if trail is None else trail.handling()


def applying(trail: Trail | None) -> AbstractContextManager[None]:
    """Return a block for `apply`, traced or not."""
    return nullcontext() if trail is None else trail.applying()


def asking(trail: EffectTrail | None, what: str) -> AbstractContextManager[None]:
    """Return a block for what an effect asks of user code, traced or not."""
    return nullcontext() if trail is None else trail.asking(what)
