"""Sealed submissions in a real database: nothing in clear, the same answers as without."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest
import sqlalchemy as sa
from pydantic import ConfigDict
from sqlalchemy.ext.asyncio import create_async_engine

from outbox import enqueue, enqueue_async, enqueue_many
from outbox.sealing.envelope import Identity
from outbox.sealing.vault import open_payload
from outbox_schemas import LogicalKeyConflict, PayloadError, SettingsError
from support.database import Database
from support.jobs import Note
from support.sealing import ring, rows_with, using

CANARY = "canary-in-a-payload"


class Secret(Note):
    """A note that is stored encrypted."""

    kind: ClassVar[str] = "test.secret"
    sealed: ClassVar[bool] = True


class SameInClear(Note):
    """The same kind as its class was before it was sealed."""

    kind: ClassVar[str] = "test.secret"


def opened(database: Database, job_id: object, keys: object) -> str:
    """Return a stored payload in clear."""
    query = "SELECT id, tenant, kind, version, payload::text FROM {s}.jobs WHERE id = %s"
    *identity, text = database.rows(query, job_id)[0]
    return open_payload(keys, Identity(*identity), text)[1]  # type: ignore[arg-type]


def test_nothing_is_stored_in_clear(database: Database, engine: sa.Engine) -> None:
    """One, many and async: every row of every table is searched for what was sealed."""
    with using(ring("k1")):
        with engine.begin() as connection:
            ref = enqueue(connection, Secret(key="a", body=CANARY), tenant="acme")
            enqueue_many(connection, [Secret(key=f"b{number}", body=CANARY) for number in range(3)])

        async def run() -> None:
            own = create_async_engine(database.driver_url("psycopg"))
            async with own.begin() as connection:
                await enqueue_async(connection, Secret(key="c", body=CANARY))
            await own.dispose()

        asyncio.run(run())
        assert database.count("jobs WHERE payload ? '$sealed'") == 5
        assert rows_with(database, CANARY) == []
        assert opened(database, ref.id, ring("k1")) == f'{{"key":"a","body":"{CANARY}"}}'
    assert rows_with(database, "test.secret") == ["jobs"]  # the search finds what is there


def test_without_keys_nothing_is_written(database: Database, engine: sa.Engine) -> None:
    """The error names the class and the remedy, and the transaction is whole."""
    with engine.begin() as connection:
        for call in (lambda: enqueue(connection, Secret(key="a")), lambda: enqueue_many(connection, [Secret(key="a")])):
            with pytest.raises(SettingsError, match="Secret is sealed, and this process has no keys"):
                call()
        enqueue(connection, Note(key="b"))
    assert database.count("jobs") == 1


def test_keys_come_from_the_environment(
    engine: sa.Engine, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that configures nothing but the variable seals."""
    file = tmp_path / "keys.toml"
    file.write_text(
        'digest_key = "' + "A" * 43 + '="\n[keys.k1]\nsecret = "' + "B" * 43 + '="\nprimary = true\n', encoding="utf-8"
    )
    file.chmod(0o400)
    monkeypatch.setenv("OUTBOX_KEYS_FILE", str(file))
    with using(None), engine.begin() as connection:
        enqueue(connection, Secret(key="a", body=CANARY))
    assert rows_with(database, CANARY) == []


def test_everything_is_sealed_if_the_ring_says_so(database: Database, engine: sa.Engine) -> None:
    """`seal_all` needs no word of the class."""
    with using(ring("k1", seal_all=True)), engine.begin() as connection:
        enqueue(connection, Note(key="a", body=CANARY))
    assert rows_with(database, CANARY) == []


def test_the_same_arguments_are_known_again_across_rotations(engine: sa.Engine) -> None:
    """A key that comes again finds its job, under whatever key either was sealed; other arguments are refused."""
    with engine.begin() as connection:
        with using(ring("k1")):
            first = enqueue(connection, Secret(key="a", body="1"))
        with using(ring("k2", "k1")):
            again = enqueue(connection, Secret(key="a", body="1"))
            assert (again.id, again.created) == (first.id, False)
            assert [ref.created for ref in enqueue_many(connection, [Secret(key="a", body="1"), Secret(key="b")])] == [
                False,
                True,
            ]
            with pytest.raises(LogicalKeyConflict):
                enqueue(connection, Secret(key="a", body="2"))


def test_a_class_may_begin_and_cease_to_be_sealed(engine: sa.Engine) -> None:
    """The same arguments are the same whether a job was sealed or not, as long as there are keys to tell by."""
    with engine.begin() as connection, using(ring("k1")):
        clear = enqueue(connection, SameInClear(key="a", body="1"))
        assert enqueue(connection, Secret(key="a", body="1")).id == clear.id
        sealed = enqueue(connection, Secret(key="b", body="1"))
        assert enqueue(connection, SameInClear(key="b", body="1")).id == sealed.id
        for other in (SameInClear(key="b", body="2"), Secret(key="a", body="2")):
            with pytest.raises(LogicalKeyConflict):
                enqueue(connection, other)


def test_a_digest_can_not_be_guessed(database: Database, engine: sa.Engine) -> None:
    """The digest of one of a few possible payloads is not the one that anybody can compute."""
    with engine.begin() as connection:
        with using(ring("k1")):
            enqueue(connection, Secret(key="a", body="yes"))
        guess = SameInClear(key="a", body="yes").to_document().digest
        assert database.count("jobs WHERE payload_digest = %s", guess) == 0
    assert database.count("jobs") == 1
    assert database.count("jobs WHERE payload_digest = %s", guess) == 0


def test_the_limit_is_on_the_plain_text(engine: sa.Engine) -> None:
    """Sealing makes a payload longer; what is allowed stays allowed."""
    with engine.begin() as connection, using(ring("k1")):
        enqueue(connection, Secret(key="a", body="x" * 65_000))
        with pytest.raises(PayloadError, match=r"has 66\d+ bytes as JSON"):
            enqueue(connection, Secret(key="b", body="x" * 66_000))


def test_a_payload_in_clear_can_not_pose_as_sealed(engine: sa.Engine) -> None:
    """A top-level field of that name is refused; deeper ones and values are nobody's concern."""

    class Posing(Note):
        kind: ClassVar[str] = "test.posing"
        model_config = ConfigDict(extra="allow")

    with engine.begin() as connection:
        with pytest.raises(PayloadError, match=r"payload\.\$sealed"):
            enqueue(connection, Posing(key="a", **{"$sealed": "1:k1:AAAA:AAAA"}))
        enqueue(connection, Note(key="b", body={"$sealed": "x"}))
        enqueue(connection, Note(key="c", body="$sealed"))


def test_sealed_must_be_a_truth_value() -> None:
    """A class that says anything else is refused when it is defined."""
    with pytest.raises(PayloadError, match=r"Odd\.sealed"):

        class Odd(Note):
            sealed = "yes"  # type: ignore[assignment, misc]
