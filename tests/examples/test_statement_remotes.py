"""What the answers of the payment provider and of the mail relay mean for an effect."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from outbox_consumer import NOT_DONE, EffectNotSent, EffectRefused, SurelyNotDone
from statements.fakes.faults import Faults
from statements.fakes.server import create_fakes
from statements.remotes import MailRelay, Provider, ThrottledBeforeCharge

Serve = Callable[[FastAPI], AbstractContextManager[httpx.Client]]
REQUEST = {"account_id": "acct_91", "amount_cents": 150, "reference": "acct_91/2026-05/v2"}


def test_a_charge_is_found_again_by_its_key(serve: Serve, tmp_path: Path) -> None:
    """What was charged is what the provider tells of the key; of another key it tells that nothing was done."""
    with serve(create_fakes(tmp_path)) as client:
        provider = Provider(client)
        charged = provider.charge("k", REQUEST)
        assert provider.find("k") == charged
        assert charged.remote_id == charged.value == "ch_000001"
        assert provider.find("other") is NOT_DONE


@pytest.mark.parametrize(
    ("options", "refusal", "code"),
    [
        ({"payments": Faults(throttle_every=1)}, ThrottledBeforeCharge, "throttled"),
        ({"expired": frozenset({"acct_91"})}, EffectRefused, "card_expired"),
    ],
)
def test_a_refusal_says_that_nothing_was_charged(
    serve: Serve, tmp_path: Path, options: dict[str, Any], refusal: type[Exception], code: str
) -> None:
    """Throttling and an expired card leave no doubt, and the provider's wish for patience is passed on."""
    with serve(create_fakes(tmp_path, **options)) as client:
        with pytest.raises(refusal) as raised:
            Provider(client).charge("k", REQUEST)
        assert isinstance(raised.value, SurelyNotDone)
        assert getattr(raised.value, "code", None) == code
        assert getattr(raised.value, "retry_after", timedelta(seconds=1)) == timedelta(seconds=1)


def test_a_provider_that_can_not_be_reached_has_not_charged() -> None:
    """A refused connection leaves no doubt either."""
    with httpx.Client(base_url="http://127.0.0.1:9", trust_env=False) as client, pytest.raises(EffectNotSent):
        Provider(client).charge("k", REQUEST)


def test_silence_says_nothing(serve: Serve, tmp_path: Path) -> None:
    """After a time-out nobody claims that nothing happened: it did, here."""
    with serve(create_fakes(tmp_path, payments=Faults(silent_every=1, silence_s=0.6))) as client:
        client.timeout = httpx.Timeout(0.2)
        with pytest.raises(httpx.ReadTimeout):
            Provider(client).charge("k", REQUEST)
        client.timeout = httpx.Timeout(10)
        assert Provider(client).find("k").value == "ch_000001"


def test_a_mail_has_the_relays_id(serve: Serve, tmp_path: Path) -> None:
    """The relay's id is kept, so that people can find the mail there."""
    with serve(create_fakes(tmp_path)) as client:
        sent = MailRelay(client).send("k", {"to": "acct_91@bank.example", "subject": "Your statement"})
        assert sent.value == sent.remote_id == "msg_000001"
