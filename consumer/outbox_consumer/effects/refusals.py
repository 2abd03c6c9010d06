"""The errors by which an effect parks its job for a person, and their words. Pure."""

from __future__ import annotations

from uuid import UUID

from outbox.leases.effects import Found
from outbox_consumer.basis.errors import TerminalError
from outbox_consumer.effects.deciding import Step
from outbox_consumer.effects.errors import (
    EffectArgumentsChanged,
    EffectOnHold,
    EffectResultUnstorable,
    EffectUnsettled,
)

__all__ = ["UNSETTLED", "answerless", "refusal", "unawaited", "unsettled_reason", "unstorable"]

UNSETTLED = EffectUnsettled.default_code
"""The code of an attempt that would have succeeded with an effect of which nobody knows whether it has happened."""

_UNDECLARED = "nothing was declared that could tell (reconcile, or another on_uncertain)"
_EXPIRED = "the other side may have forgotten the key of the first request (effect_key_lifetime)"


def refusal(step: Step, found: Found, job_id: UUID, name: str) -> TerminalError:
    """Return the error for a step that ends the call."""
    if step is Step.CHANGED:
        return EffectArgumentsChanged(
            f"effect {name!r} is {found.state} with other arguments since attempt {found.attempt}; give the same "
            "arguments in every attempt, or another name to another request"
        )
    if step is Step.UNSTORED:
        return unstorable(job_id, name, found.result_note or "")
    why = _EXPIRED if step is Step.HOLD_EXPIRED else _UNDECLARED
    return EffectOnHold(
        f"nobody knows whether effect {name!r} of attempt {found.attempt} has happened, and {why}; find out, and say "
        f"so with `outbox effects resolve {job_id} {name}`"
    )


def unstorable(job_id: UUID, name: str, note: str) -> EffectResultUnstorable:
    """Return the error for an effect that has happened and whose result is not there."""
    return EffectResultUnstorable(
        f"effect {name!r} has happened and is not sent again, but its result could not be stored: {note}; give one "
        f"with `outbox effects resolve {job_id} {name} --as confirmed --result-file FILE`"
    )


def unsettled_reason(effects: str) -> str:
    """Return the words for an attempt whose handler has returned although effects, named so, are open."""
    return (
        f"the handler has returned, but nobody knows whether these effects have happened: {effects}; let what "
        "job.effect() raises end the attempt, and wait for the threads and tasks that call it: the next attempt "
        "settles them"
    )


def unawaited(names: list[str]) -> TerminalError:
    """Return the error for a handler that has returned without these effects, though it has asked for them."""
    shown = ", ".join(repr(name) for name in names[:3])
    return TerminalError(
        f"the handler has returned, but nobody has awaited job.effect_async() of {shown}, so nothing of it has run; "
        "await it in handle() (tasks that call it, too), or call job.effect() in a plain Handler",
        code="handler_misdeclared",
    )


def answerless(name: str, answer: object) -> TerminalError:
    """Return the error for a reconciler whose answer may as well mean that it has found nothing."""
    return TerminalError(
        f"reconcile of effect {name!r} returned {_nothing(answer)}, which may mean anything; return NOT_DONE, what was "
        "found, or EffectResult(…) around it if that is what was found",
        code="effect_reconcile_none",
    )


def _nothing(answer: object) -> str:
    if answer is None:
        return "None"
    return f"{answer!r}" if isinstance(answer, bool | int) else f"an empty {type(answer).__name__}"
