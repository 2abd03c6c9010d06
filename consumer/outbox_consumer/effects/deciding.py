"""What is done with an effect, given what is on record of it and what the handler has declared. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal
from uuid import UUID

from outbox.leases.effects import Found
from outbox_schemas import EffectState

__all__ = ["POLICIES", "OnUncertain", "Step", "in_doubt", "step_for"]

OnUncertain = Literal["hold", "resend", "assume_done"]
POLICIES: tuple[OnUncertain, ...] = ("hold", "resend", "assume_done")


class Step(StrEnum):
    """What comes next in a call of an effect."""

    SEND = "send it: this call has just announced it"
    AGAIN = "announce it anew and send it"
    RECONCILE = "ask whether it has happened"
    RETURN = "return the stored result"
    ASSUME = "take it for done, as declared"
    HOLD = "leave it to a person: nothing was declared that could tell"
    HOLD_EXPIRED = "leave it to a person: the other side may have forgotten the key"
    CHANGED = "refuse: it is on record with other arguments"
    UNSTORED = "refuse: it has happened, but its result could not be stored"
    LOST = "stop: the lease is lost"


def step_for(
    found: Found,
    call: UUID,
    digest: bytes,
    *,
    reconciles: bool,
    on_uncertain: OnUncertain,
    key_lifetime_s: float | None = None,
) -> Step:
    """Decide what comes next.

    Args:
        found: what is on record.
        call: the call that asks. If it stands there already, an earlier answer to this very call was lost, and nothing
            has been sent.
        digest: that of the arguments given now.
        reconciles: whether there is a reconciler; then the policy is not asked.
        on_uncertain: the declared policy.
        key_lifetime_s: for how long the other side honours the effect's key; None: for ever.
    """
    if not found.held:
        return Step.LOST
    if found.digest != digest:
        return Step.CHANGED
    if found.state is EffectState.CONFIRMED:
        return Step.RETURN if found.result_note is None else Step.UNSTORED
    if found.call == call:
        return Step.SEND
    if found.state is EffectState.NOT_DONE:
        return Step.AGAIN
    expired = key_lifetime_s is not None and found.age_s > key_lifetime_s
    return Step.RECONCILE if reconciles else _by_policy(on_uncertain, expired=expired)


def _by_policy(on_uncertain: OnUncertain, *, expired: bool) -> Step:
    if on_uncertain == "assume_done":
        return Step.ASSUME
    if on_uncertain == "hold":
        return Step.HOLD
    return Step.HOLD_EXPIRED if expired else Step.AGAIN


def in_doubt(step: Step, found: Found) -> bool:
    """Tell whether an earlier request may have been heard when this step has the effect sent: a policy says to send it
    again, and nobody has said that nothing had happened. What comes of the new request then settles that one only if
    it is a success.
    """
    return step is Step.AGAIN and found.state is not EffectState.NOT_DONE
