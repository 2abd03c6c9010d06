"""Rotation of keys, against real rows: what it changes, what it leaves, and whom it never waits for."""

from __future__ import annotations

import threading
from typing import Any, ClassVar
from uuid import UUID

import pytest

from outbox import pause
from outbox.database.link import Link
from outbox.keeping.pauses import PauseKeeper
from outbox.leases.ending import Failure, complete, fail, park
from outbox.reading.opening import open_job
from outbox.sealing import Key, KeyRing
from outbox.sealing.envelope import Identity
from outbox.sealing.ring import KeyProvider
from outbox.sealing.rotating import begin_rotation, count_seals, find_rotation, rotate_batch
from outbox.sealing.vault import open_payload
from outbox_schemas import JobNotFound, NameRefused, SealBroken, UnknownKey
from support.database import Database
from support.invariants import check_invariants
from support.jobs import ABILITIES, Note, look, notes, release_all, submit, take
from support.sealing import ring, rows_with, secret, using

WHO = {"by": "ops", "reason": "the year's end"}


class Secret(Note):
    """A note that is stored encrypted."""

    kind: ClassVar[str] = "test.secret"
    sealed: ClassVar[bool] = True


class SecretNote(Note):
    """The usual kind, sealed."""

    sealed: ClassVar[bool] = True


def seal(database: Database, count: int, keys: KeyProvider, cls: type[Note] = SecretNote, **options: Any) -> list[UUID]:
    """Commit sealed jobs."""
    payloads = [cls(key=note.key, body="canary") for note in notes(count)]
    with using(keys):
        return submit(database, payloads=payloads, **options)


def rotate(link: Link, keys: KeyProvider, *, batch: int = 7, steps: int = 100) -> Any:
    """Rotate to the end, in so many steps at most."""
    rotation = find_rotation(link, keys) or begin_rotation(link, keys, **WHO)
    for _ in range(steps):
        rotation = rotate_batch(link, keys, rotation.id, batch=batch)
        if rotation.done:
            break
    return rotation


def key_ids(database: Database) -> dict[str, int]:
    """Return how many jobs are sealed under each key."""
    key_id = "split_part(payload->>'$sealed', ':', 2)"
    query = f"SELECT {key_id}, count(*)::int FROM {{s}}.jobs WHERE payload ? '$sealed' GROUP BY 1"
    return dict(database.rows(query))


def text_of(database: Database, job_id: UUID, keys: KeyProvider) -> str:
    """Return a payload in clear."""
    *identity, text = database.rows(
        "SELECT id, tenant, kind, version, payload::text FROM {s}.jobs WHERE id = %s", job_id
    )[0]
    return open_payload(keys, Identity(*identity), text)[1]


def test_all_are_put_under_the_new_key(database: Database, link: Link) -> None:
    """Sealed jobs in every state, in small batches; those in clear stay as they are; then the old key is not needed."""
    ids = seal(database, 20, ring("k1"))
    submit(database, 5)
    release_all(link)
    with using(ring("k1")):
        claimed = take(link, ids[:6])
    complete(link, [item.lease for item in claimed[:3]])
    fail(link, [(item.lease, Failure("terminal", "x", "it broke")) for item in claimed[3:5]])
    clear = database.rows("SELECT id, payload FROM {s}.jobs WHERE NOT payload ? '$sealed' ORDER BY id")
    rotation = rotate(link, ring("k2", "k1"))
    assert (rotation.done, rotation.rotated, rotation.walked, rotation.busy) == (True, 20, 25, [])
    assert key_ids(database) == {"k2": 20}
    assert all("canary" in text_of(database, job_id, ring("k2")) for job_id in ids)
    assert database.rows("SELECT id, payload FROM {s}.jobs WHERE NOT payload ? '$sealed' ORDER BY id") == clear
    assert check_invariants(database) == []
    assert complete(link, [claimed[5].lease]) == {ids[5]}
    assert rows_with(database, "canary") == []


def test_it_is_audited_and_done_once(database: Database, link: Link) -> None:
    """Its beginning and its end are on record with who and why, whatever is between; a second one finds nothing."""
    seal(database, 3, ring("k1"))
    rotate(link, ring("k2", "k1"), batch=1)
    rows = database.rows("SELECT action, actor, reason, detail FROM {s}.audit ORDER BY id")
    assert [row[:3] for row in rows] == [
        (action, "ops", "the year's end") for action in ("keys.rotate", "keys.rotated")
    ]
    assert rows[0][3]["key_ids"] == ["k1", "k2"]
    assert rows[1][3] == {"walked": 3, "rotated": 3, "unopened": 0}
    assert rotate(link, ring("k2", "k1")).rotated == 0
    with pytest.raises(NameRefused):
        begin_rotation(link, ring("k2"), by="", reason="x")


def test_it_goes_on_where_it_was(database: Database, link: Link) -> None:
    """What was seen to before an interruption is not read again; under other keys it begins anew."""
    seal(database, 10, ring("k1"))
    keys = ring("k2", "k1")
    first = begin_rotation(link, keys, **WHO)
    assert rotate_batch(link, keys, first.id, batch=4).rotated == 4
    found = find_rotation(link, keys)
    assert found is not None
    assert (found.id, found.walked, found.rotated) == (first.id, 4, 4)
    other = ring("k3", "k2", "k1")
    assert find_rotation(link, other) is None
    assert rotate(link, other).rotated == 10
    assert key_ids(database) == {"k3": 10}
    assert find_rotation(link, keys) is None
    assert rotate_batch(link, keys, first.id, batch=4).state == "given_up"
    assert key_ids(database) == {"k3": 10}


def test_with_another_primary_it_begins_anew(database: Database, link: Link) -> None:
    """The same keys, of which another one seals now: what was passed by then stands under the wrong one."""
    seal(database, 10, ring("k1"), tenant="acme")
    seal(database, 10, ring("k1"))
    first = begin_rotation(link, ring("k2", "k1"), **WHO)
    assert rotate_batch(link, ring("k2", "k1"), first.id, batch=14).rotated == 14
    back = ring("k1", "k2")
    assert find_rotation(link, back) is None
    rotation = rotate(link, back)
    assert (rotation.done, key_ids(database)) == (True, {"k1": 20})
    (begun,) = database.rows("SELECT detail FROM {s}.audit WHERE action = 'keys.rotate' ORDER BY id DESC LIMIT 1")
    assert (begun[0]["key_ids"], begun[0]["primaries"], begun[0]["given_up"]) == (["k1", "k2"], ["k1"], [first.id])


def test_held_jobs_are_passed_by_and_come_later(database: Database, link: Link) -> None:
    """A job whose outbox row or own row somebody holds keeps nobody waiting, and is rotated once it is free."""
    ids = seal(database, 6, ring("k1"))
    keys = ring("k2", "k1")
    with database.connect(autocommit=False) as holder:
        holder.execute(database.sql("SELECT FROM {s}.outbox WHERE job_id = %s FOR UPDATE", escaped=True), [ids[1]])
        holder.execute(database.sql("SELECT FROM {s}.jobs WHERE id = %s FOR UPDATE", escaped=True), [ids[4]])
        rotation = rotate(link, keys, steps=5)
        assert (rotation.done, rotation.rotated, rotation.busy) == (False, 4, [ids[1], ids[4]])
        assert key_ids(database) == {"k1": 2, "k2": 4}
        holder.rollback()
    assert rotate(link, keys).done
    assert key_ids(database) == {"k2": 6}


def test_what_changed_meanwhile_is_left(database: Database, link: Link) -> None:
    """An envelope that is not the one that was read is not overwritten: the other writer's stays."""
    (job_id,) = seal(database, 1, ring("k1"))
    (row,) = link.run("read_seals", job_ids=[job_id])
    database.rows("UPDATE {s}.jobs SET payload = jsonb_build_object('$sealed', 'other')")
    (found,) = link.run("reseal", job_ids=[job_id], olds=[row.sealed], news=['{"$sealed": "mine"}'])
    assert found.outcome == "gone"
    assert database.value("SELECT payload->>'$sealed' FROM {s}.jobs") == "other"


def test_what_does_not_open_is_counted_and_left(database: Database, link: Link) -> None:
    """Jobs under a key that is not here, and broken ones, stay; the rotation ends all the same."""
    seal(database, 2, ring("lost"))
    ids = seal(database, 2, ring("k1"))
    database.rows("UPDATE {s}.jobs SET payload = jsonb_build_object('$sealed', '1:k1:AAAA:AAAA') WHERE id = %s", ids[0])
    rotation = rotate(link, ring("k2", "k1"))
    assert (rotation.done, rotation.rotated, rotation.unopened) == (True, 1, 3)
    assert key_ids(database) == {"lost": 2, "k1": 1, "k2": 1}


def test_a_parked_job_is_offered_again(database: Database, link: Link) -> None:
    """Once its key is the new one, a job that waited for the old one is free for everybody who has the new one."""
    (job_id,) = seal(database, 1, ring("k1"))
    release_all(link)
    (claimed,) = take(link, [job_id])
    park(link, [(claimed.lease, "k1")], pause_s=3600)
    rotate(link, ring("k2", "k1"))
    owed = look(database, job_id).owed
    assert owed is not None
    assert owed.last_error is None
    release_all(link)
    assert [item.lease.job_id for item in take(link, [job_id], ABILITIES)] == [job_id]
    assert check_invariants(database) == []


def test_a_destroyed_tenants_key_makes_his_jobs_unreadable_and_no_others(database: Database, link: Link) -> None:
    """A tenant's jobs are under his key through every rotation, and gone with it; a job of another tenant is not."""
    tenants = {"acme": "acme-1"}
    (his,) = seal(database, 1, ring("k1", tenants=tenants), tenant="acme")
    (other,) = seal(database, 1, ring("k1", tenants=tenants), tenant="other")
    rotate(link, ring("k2", "k1", tenants=tenants))
    assert key_ids(database) == {"acme-1": 1, "k2": 1}
    rotate(
        link,
        KeyRing(
            [
                Key("k2", secret("k2"), primary=True),
                Key("acme-1", secret("acme-1"), tenant="acme"),
                Key("acme-2", secret("acme-2"), tenant="acme", primary=True),
            ],
            digest_key=secret("digest"),
        ),
    )
    assert key_ids(database) == {"acme-2": 1, "k2": 1}
    assert "canary" in text_of(database, other, ring("k2"))
    with pytest.raises(UnknownKey, match="acme-2"):
        text_of(database, his, ring("k2", tenants=tenants))


def test_counts_by_key(database: Database, link: Link) -> None:
    """All sealed jobs are counted under their keys, and those that wait; a count that is cut short says so."""
    seal(database, 3, ring("k1"))
    ids = seal(database, 4, ring("k2"))
    submit(database, 5)
    release_all(link)
    (claimed,) = take(link, ids[:1])
    park(link, [(claimed.lease, "k2")])
    counts = count_seals(link, batch=5, more=lambda: True)
    assert [(key.key_id, key.jobs, key.waiting) for key in counts.keys] == [("k1", 3, 0), ("k2", 4, 1)]
    assert (counts.walked, counts.complete) == (12, True)
    cut = count_seals(link, batch=5, more=lambda: False)
    assert (cut.walked, cut.complete) == (5, False)
    assert count_seals(database.link(), batch=100, more=lambda: True).walked == 12


def test_two_at_once_share_the_work(database: Database) -> None:
    """Two processes on one rotation take turns: each job is rotated once, and none is missed."""
    seal(database, 60, ring("k1"))
    keys = ring("k2", "k1")
    rotation = begin_rotation(database.link(), keys, **WHO)

    def work() -> None:
        link = database.link()
        while not rotate_batch(link, keys, rotation.id, batch=7).done:
            pass

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = rotate_batch(database.link(), keys, rotation.id, batch=1)
    assert (found.done, found.rotated, found.walked) == (True, 60, 60)
    assert key_ids(database) == {"k2": 60}


def test_an_update_stays_on_its_page(database: Database, link: Link) -> None:
    """No index holds a payload, so a rotation writes no index."""
    seal(database, 10, ring("k1"))
    before = database.rows("SELECT id, (ctid::text::point)[0] FROM {s}.jobs ORDER BY id")
    rotate(link, ring("k2", "k1"))
    assert database.rows("SELECT id, (ctid::text::point)[0] FROM {s}.jobs ORDER BY id") == before


def test_a_look_into_a_job(database: Database, link: Link) -> None:
    """Everything that is sealed is shown in clear to who has the keys, and audited, whoever looks."""
    with using(ring("k1")):
        (job_id,) = submit(database, payloads=[SecretNote(key="k", body="canary")])
    (row,) = link.run("read_seals", job_ids=[job_id])
    vault, _ = open_payload(ring("k1"), Identity(row.id, row.tenant, row.kind, row.version), row.sealed)
    release_all(link)
    (claimed,) = take(link, [job_id])
    failure = Failure("unknown", "E", vault.seal_text("it broke", "error"), vault.seal_text("here", "traceback"))
    fail(link, [(claimed.lease, failure)])
    insert = "INSERT INTO {s}.checkpoints VALUES (%s, %s, 1, %s::jsonb, {s}.clock())"
    database.rows(insert, job_id, "step", vault.seal_json("[1]", "checkpoint:step"))
    database.rows(insert, job_id, "moved", vault.seal_json("[1]", "checkpoint:step"))
    found = {thing.name: thing.text for thing in open_job(link, ring("k1"), job_id, **WHO).things}
    assert found == {
        "payload": '{"key":"k","body":"canary"}',
        "first error": "it broke",
        "last error": "it broke",
        "error of attempt 1": "it broke",
        "traceback of attempt 1": "here",
        "checkpoint step": "[1]",
        "checkpoint moved": "(it does not open: it was changed, or belongs to another job or place)",
    }
    assert not open_job(link, ring("k1"), job_id, **WHO).is_cut
    assert database.rows("SELECT DISTINCT action, actor, subject FROM {s}.audit") == [("job.open", "ops", str(job_id))]
    cut = open_job(link, ring("k1"), job_id, **WHO, limit=1)
    assert ([thing.name for thing in cut.things][3:], cut.is_cut) == (
        ["error of attempt 1", "traceback of attempt 1", "checkpoint moved"],
        True,
    )
    with pytest.raises(UnknownKey):
        open_job(link, ring("k2"), job_id, **WHO)
    database.rows("UPDATE {s}.jobs SET payload = jsonb_build_object('$sealed', '1:k1:AAAA:AAAA')")
    with pytest.raises(SealBroken):
        open_job(link, ring("k1"), job_id, **WHO)
    (clear,) = submit(database)
    assert open_job(link, None, clear, **WHO).things == []
    with pytest.raises(JobNotFound):
        open_job(link, None, UUID(int=5), **WHO)


@pytest.mark.parametrize("long", ["attempts", "checkpoints", "effects"])
def test_a_look_into_a_long_job_is_bounded(database: Database, link: Link, long: str) -> None:
    """Of each it shows so many, of attempts the newest, and says that there are more, whichever they are."""
    (job_id,) = seal(database, 1, ring("k1"))
    (row,) = link.run("read_seals", job_ids=[job_id])
    vault, _ = open_payload(ring("k1"), Identity(row.id, row.tenant, row.kind, row.version), row.sealed)
    error, trace = vault.seal_text("it broke", "error"), vault.seal_text("here", "traceback")
    for number in range(1, 4 if long == "attempts" else 3):
        database.rows(
            "INSERT INTO {s}.attempts (job_id, number, lease_token, worker, host, worker_version, handler_version, "
            "claimed_at, ended_at, outcome, error_class, error_code, error_message, traceback) "
            "VALUES (%s, %s, gen_random_uuid(), 'w', 'h', '1', '1', now(), now(), 'retried', 'unknown', 'E', %s, %s)",
            job_id, number, error, trace,
        )  # fmt: skip
    for name in "abc" if long == "checkpoints" else "ab":
        sealed = vault.seal_json("[1]", f"checkpoint:{name}")
        database.rows("INSERT INTO {s}.checkpoints VALUES (%s, %s, 1, %s::jsonb, {s}.clock())", job_id, name, sealed)
    for name in "abc" if long == "effects" else "ab":
        result, why = vault.seal_json("2", f"effect:{name}"), vault.seal_text("cut", f"effect_error:{name}")
        database.rows(
            "INSERT INTO {s}.effects (job_id, name, state, arguments_digest, attempt, created_at, updated_at, result, "
            "error_message, error_code) VALUES (%s, %s, 'uncertain', '', 1, now(), now(), %s::jsonb, %s, 'E')",
            job_id, name, result, why,
        )  # fmt: skip
    found = open_job(link, ring("k1"), job_id, **WHO, limit=2)
    numbers = (2, 3) if long == "attempts" else (1, 2)
    assert ([thing.name for thing in found.things][1:], found.is_cut) == (
        [f"{what} of attempt {number}" for what in ("error", "traceback") for number in numbers]
        + [f"{what} {name}" for what in ("checkpoint", "result of effect", "error of effect") for name in "ab"],
        True,
    )
    assert not open_job(link, ring("k1"), job_id, **WHO, limit=3).is_cut


class SecretKeyed(SecretNote):
    """Sealed jobs, one at a time."""

    def limit_key(self) -> str | None:
        """Return what all of them share."""
        return "one"


@pytest.mark.parametrize("aside", ["its key", "a pause"])
def test_a_parked_job_that_stands_aside_stays_there(database: Database, link: Link, aside: str) -> None:
    """It waits for its turn, or for the end of a pause, as before, and then goes at its own place in line."""
    old, new = ring("k1"), ring("k2", "k1")
    jobs = seal(database, 2, old, SecretKeyed if aside == "its key" else SecretNote)
    for _ in jobs:
        claimed = take(link, [hint.job_id for hint in release_all(link)])
        park(link, [(one.lease, "k1") for one in claimed], pause_s=1.0)
    database.clock.advance(2)
    if aside == "its key":
        assert len(release_all(link)) == 1
    else:
        with database.engine().begin() as connection:
            pause(connection, "tenant", "default", **WHO)
        PauseKeeper().keep(link)
    columns = "job_id, order_key, due_at, last_error, needs_key"
    query = f"SELECT {columns} FROM {{s}}.outbox WHERE order_key > '3000-01-01' ORDER BY 1"
    before = database.rows(query)
    assert len(before) == (1 if aside == "its key" else 2)
    assert {row[4] for row in before} == {"k1"}
    assert rotate(link, new).rotated == 2
    assert database.rows(query) == [(*row[:4], None) for row in before]
    assert check_invariants(database) == []


def test_a_parked_job_whose_hint_is_out_keeps_its_time(database: Database, link: Link) -> None:
    """It is due when its hint would count as lost: owed before that, it would be hinted twice."""
    old, new = ring("k1"), ring("k2", "k1")
    seal(database, 1, old)
    park(link, [(one.lease, "k1") for one in take(link, [hint.job_id for hint in release_all(link)])], pause_s=1.0)
    database.clock.advance(2)
    assert len(release_all(link)) == 1
    query = "SELECT phase, due_at, order_key, released_at, release_count, needs_key FROM {s}.outbox"
    [before] = database.rows(query)
    assert (before[0], before[-1]) == ("released", "k1")
    assert rotate(link, new).rotated == 1
    assert database.rows(query) == [(*before[:-1], None)]
    assert check_invariants(database) == []
