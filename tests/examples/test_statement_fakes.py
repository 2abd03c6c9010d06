"""The two remote services of the example."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from statements.fakes.faults import Faults
from statements.fakes.ledger import Ledger
from statements.fakes.server import create_fakes

Serve = Callable[[FastAPI], AbstractContextManager[httpx.Client]]
CHARGE = {"account_id": "acct_91", "amount_cents": 150, "reference": "acct_91/2026-05/v2"}
MAIL = {"to": "acct_91@bank.example", "subject": "Your statement"}


@contextmanager
def fakes(serve: Serve, folder: Path, **options: object) -> Iterator[httpx.Client]:
    """Serve both services."""
    with serve(create_fakes(folder, **options)) as client:  # type: ignore[arg-type]
        yield client


def charge(client: httpx.Client, key: str, **changes: object) -> httpx.Response:
    """Ask for a charge."""
    return client.post("/charges", json=CHARGE | changes, headers={"Idempotency-Key": key})


def test_one_key_is_one_charge(serve: Serve, tmp_path: Path) -> None:
    """Twenty requests at once under one key make one charge, and all are told of it."""
    with fakes(serve, tmp_path) as client, ThreadPoolExecutor(20) as crowd:
        answers = list(crowd.map(lambda _: charge(client, "k"), range(20)))
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert {answer.json()["id"] for answer in answers} == {"ch_000001"}
        assert len(client.get("/charges").json()) == 1


def test_a_key_belongs_to_one_charge(serve: Serve, tmp_path: Path) -> None:
    """Another amount under a taken key is refused, and nothing is charged."""
    with fakes(serve, tmp_path) as client:
        charge(client, "k")
        assert charge(client, "k", amount_cents=151).status_code == 422
        assert len(client.get("/charges").json()) == 1


def test_a_throttled_charge_is_not_made(serve: Serve, tmp_path: Path) -> None:
    """429 says when to come again and leaves nothing behind; the next request is served."""
    with fakes(serve, tmp_path, payments=Faults(throttle_every=2)) as client:
        charge(client, "first")
        refused = charge(client, "second")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert client.get("/charges/second").status_code == 404
        assert charge(client, "second").status_code == 201


def test_a_silent_provider_has_charged(serve: Serve, tmp_path: Path) -> None:
    """A caller that gave up waiting finds the charge under its key."""
    with fakes(serve, tmp_path, payments=Faults(silent_every=1, silence_s=0.6)) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post("/charges", json=CHARGE, headers={"Idempotency-Key": "k"}, timeout=0.2)
        assert client.get("/charges/k").json()["id"] == "ch_000001"


def test_an_expired_card_is_not_charged_until_it_is_renewed(serve: Serve, tmp_path: Path) -> None:
    """402 until the card is valid again."""
    with fakes(serve, tmp_path, expired=frozenset({"acct_91"})) as client:
        assert charge(client, "k").status_code == 402
        client.put("/accounts/acct_91/card", json={"valid": True})
        assert charge(client, "k").status_code == 201


def test_the_mail_relay_sends_whatever_it_is_given(serve: Serve, tmp_path: Path) -> None:
    """The same message twice is sent twice: it knows no keys."""
    with fakes(serve, tmp_path) as client:
        ids = [client.post("/messages", json=MAIL).json()["id"] for _ in range(2)]
        assert ids == ["msg_000001", "msg_000002"]
        assert len(client.get("/messages").json()) == 2


def test_a_ledger_outlives_its_process(tmp_path: Path) -> None:
    """What was written is there again, but for a line that a killed process left half-written."""
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.add({"key": "a"})
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"number": 2, "key"')
    again = Ledger(path)
    again.add({"key": "b"})
    again.close()
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "b"]
