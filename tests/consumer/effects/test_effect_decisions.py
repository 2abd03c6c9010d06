"""What is done with an effect, without a database: every state on record against everything that can be declared."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, field_serializer

from outbox.leases.effects import Found
from outbox_consumer import NOT_DONE, EffectResult
from outbox_consumer.effects.deciding import POLICIES, OnUncertain, Step, in_doubt, step_for
from outbox_consumer.effects.declared import Declared
from outbox_consumer.effects.values import remote_of, says_not_done, says_nothing
from outbox_schemas import EffectState, HandlerError, NameRefused, PayloadError
from outbox_schemas.effect_keys import provider_key

CALL, OTHER = uuid4(), uuid4()
DIGEST = b"digest"
FOUND = Found(held=True, state=EffectState.UNCERTAIN, call=OTHER, digest=DIGEST, attempt=1, age_s=90.0)
BY_POLICY = {"hold": Step.HOLD, "resend": Step.AGAIN, "assume_done": Step.ASSUME}


def decide(
    found: Found, *, reconciles: bool = False, policy: OnUncertain = "hold", life_s: float | None = None
) -> Step:
    """Decide for this test's call and digest."""
    return step_for(found, CALL, DIGEST, reconciles=reconciles, on_uncertain=policy, key_lifetime_s=life_s)


@pytest.mark.parametrize(("reconciles", "policy", "state"), [*product([False, True], POLICIES, EffectState)])
def test_a_lost_lease_and_other_arguments_come_first(reconciles: bool, policy: OnUncertain, state: EffectState) -> None:
    """Whatever is declared and recorded, who owns nothing does nothing, and no other request goes under this name."""
    found = replace(FOUND, state=state)
    assert decide(Found(held=False), reconciles=reconciles, policy=policy) is Step.LOST
    assert decide(replace(found, digest=b"other"), reconciles=reconciles, policy=policy) is Step.CHANGED


@pytest.mark.parametrize(("reconciles", "policy"), [*product([False, True], POLICIES)])
def test_what_is_settled_needs_no_policy(reconciles: bool, policy: OnUncertain) -> None:
    """A confirmed effect is never sent, one that surely did not happen always is, whatever is declared."""
    confirmed = replace(FOUND, state=EffectState.CONFIRMED, result_text="1")
    assert decide(confirmed, reconciles=reconciles, policy=policy) is Step.RETURN
    assert decide(replace(confirmed, result_note="too large"), reconciles=reconciles, policy=policy) is Step.UNSTORED
    assert decide(replace(FOUND, state=EffectState.NOT_DONE), reconciles=reconciles, policy=policy) is Step.AGAIN


@pytest.mark.parametrize(("policy", "state"), [*product(POLICIES, (EffectState.PENDING, EffectState.UNCERTAIN))])
def test_what_is_unknown_is_asked_for_before_the_policy(policy: OnUncertain, state: EffectState) -> None:
    """A reconciler is asked first; without one the policy decides, for a crash as for an uncertain answer."""
    found = replace(FOUND, state=state)
    assert decide(found, reconciles=True, policy=policy) is Step.RECONCILE
    assert decide(found, policy=policy) is BY_POLICY[policy]


@pytest.mark.parametrize(("step", "state"), [*product((Step.SEND, Step.AGAIN, Step.RECONCILE), EffectState)])
def test_only_a_policy_sends_in_doubt(step: Step, state: EffectState) -> None:
    """The first request, one after a reconciler's or a person's word and one after a sure failure stand alone."""
    unknown = state is not EffectState.NOT_DONE
    assert in_doubt(step, replace(FOUND, state=state)) is (step is Step.AGAIN and unknown)


def test_an_own_announcement_is_sent() -> None:
    """The row of this very call, be it new or found again after a lost answer, means that nothing was sent yet."""
    mine = replace(FOUND, state=EffectState.PENDING, call=CALL)
    assert decide(mine) is Step.SEND
    assert decide(replace(mine, begun=True), reconciles=True) is Step.SEND


def test_a_forgotten_key_is_not_sent_blindly() -> None:
    """Past the key's lifetime `resend` turns into a hold; what surely was not done, or can be asked for, goes on."""
    assert decide(FOUND, policy="resend", life_s=91) is Step.AGAIN
    assert decide(FOUND, policy="resend", life_s=89) is Step.HOLD_EXPIRED
    assert decide(FOUND, policy="resend", reconciles=True, life_s=89) is Step.RECONCILE
    assert decide(replace(FOUND, state=EffectState.NOT_DONE), policy="resend", life_s=89) is Step.AGAIN


def test_the_provider_key_never_changes() -> None:
    """It is a function of job and name alone, and the same in every release: money hangs on it."""
    job_id = UUID("0190a3b5-1111-7222-8333-444455556666")
    assert str(provider_key(job_id, "charge")) == "3b549bbc-0283-55d7-a0dd-7c95493f711f"
    assert provider_key(job_id, "charge") != provider_key(job_id, "refund")


def declared(**changes: Any) -> Declared:
    """Return a sound declaration but for these changes."""
    given = {"name": "charge", "request": {}, "send": print, "reconcile": None, "on_uncertain": "hold", "not_done": ()}
    given |= {"asynchronous": False} | changes
    return Declared.of(given.pop("name"), given.pop("request"), **given)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": ""}, NameRefused),
        ({"name": "a b"}, NameRefused),
        ({"request": {1, 2}}, PayloadError),
        ({"request": {1: "a"}}, PayloadError),
        ({"request": "x" * 1_100_000}, PayloadError),
        ({"send": None}, HandlerError),
        ({"send": "post"}, HandlerError),
        ({"send": asyncio.sleep}, HandlerError),
        ({"reconcile": 1}, HandlerError),
        ({"on_uncertain": "ask"}, HandlerError),
        ({"not_done": OSError}, HandlerError),
        ({"not_done": ("OSError",)}, HandlerError),
        ({"not_done": (OSError, Exception)}, HandlerError),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    """A wrong name, request or function is named, and its value is not shown."""
    with pytest.raises(error, match=next(iter(changes)) if "name" not in changes else "effect"):
        declared(**changes)


def test_equal_requests_have_one_digest() -> None:
    """Neither the order of keys, nor a tuple, nor 1 against 1.0 makes another request; a value does."""
    first = declared(request={"a": 1, "b": [1, 2]}).digest
    assert declared(request={"b": (1, 2), "a": 1.0}).digest == first
    assert declared(request={"a": 2, "b": [1, 2]}).digest != first


class Rude(BaseModel):
    """A model whose own code fails."""

    amount: int = 1

    @field_serializer("amount")
    def _fail(self, _value: int) -> int:
        raise KeyError


class _Unprintable:
    def __str__(self) -> str:
        raise KeyError


@pytest.mark.parametrize(
    "value", [{1, 2}, "\x00", float("nan"), -0.0, "x" * 70_000, {1: "a"}, object(), Rude(), 10**700]
)
def test_every_answer_leaves_something_to_confirm(value: Any) -> None:
    """What can't be stored becomes a note that says why, without the value; it never raises."""
    remote = remote_of(EffectResult(value, remote_id=_Unprintable()))  # type: ignore[arg-type]
    assert remote.result_text is None
    assert remote.request_id is None
    assert str(remote.result_note).startswith("result")
    assert len(str(remote.result_note)) <= 500


def test_a_remote_id_is_safe_to_show() -> None:
    """It comes from the other side: bounded, in one line, without what drives terminals."""
    assert remote_of(EffectResult(1, remote_id="ch_\x1b[31m\n" + "x" * 1000)).request_id == "ch_[31m " + "x" * 491 + "…"


@pytest.mark.parametrize("answer", [NOT_DONE, EffectResult(NOT_DONE), copy.deepcopy(NOT_DONE)])
def test_not_done_is_known_in_every_form(answer: Any) -> None:
    """Wrapped, or as a process pool gives it back: it is never confirmed as a result that can't be stored."""
    assert says_not_done(answer)
    assert not says_nothing(answer)


@pytest.mark.parametrize("answer", [None, False, 0, 0.0, "", b"", [], (), {}, set()])
def test_what_may_mean_nothing_is_no_answer_unless_it_is_said_to_be(answer: Any) -> None:
    """Look-ups return any of these for "not found"; in an `EffectResult` it is the result."""
    assert says_nothing(answer)
    assert not says_nothing(EffectResult(answer))
    assert not any(map(says_not_done, (answer, EffectResult(answer))))


def test_what_was_found_is_an_answer() -> None:
    """Whatever it is: no code of its class is asked."""
    assert not any(map(says_nothing, (True, 1, "id", [None], {"id": None}, object(), Rude())))
