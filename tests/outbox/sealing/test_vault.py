"""Seals: what opens where, and what never does."""

from __future__ import annotations

import json
import pickle
import uuid
from typing import Any

import pytest

from outbox.sealing import Key, KeyRing
from outbox.sealing.envelope import (
    Identity,
    hidden,
    is_reserved,
    is_sealed,
    is_sealed_text,
    payload_text,
    read_payload,
)
from outbox.sealing.vault import Vault, new_vault, open_payload, openable, rewrap, sealed_digest
from outbox_schemas import SealBroken, SettingsError, UnknownKey
from support.sealing import ring, secret

ME = Identity(uuid.UUID(int=7), "default", "test.note", 1)
TEXT = '{"key":"k","body":"é \\u0001 canary"}'


def test_a_payload_comes_back() -> None:
    """What was sealed opens to the very same text, and nothing of it can be read before."""
    sealed = new_vault(ME).seal_payload(ring("k1"), TEXT)
    assert is_sealed(sealed)
    assert json.loads(sealed).keys() == {"$sealed"}
    assert "canary" not in sealed
    assert open_payload(ring("k1"), ME, sealed)[1] == TEXT


def test_no_two_seals_are_alike() -> None:
    """The same text for the same job is sealed by another key and nonce each time."""
    assert new_vault(ME).seal_payload(ring("k1"), TEXT) != new_vault(ME).seal_payload(ring("k1"), TEXT)
    vault = new_vault(ME)
    assert vault.seal_text("x", "error") != vault.seal_text("x", "error")


@pytest.mark.parametrize(
    "other",
    [
        ME._replace(job_id=uuid.UUID(int=8)),
        ME._replace(tenant="other"),
        ME._replace(kind="test.other"),
        ME._replace(version=2),
    ],
)
def test_a_moved_envelope_does_not_open(other: Identity) -> None:
    """An envelope opens for its own job, tenant, kind and version alone."""
    sealed = new_vault(ME).seal_payload(ring("k1"), TEXT)
    with pytest.raises(SealBroken):
        open_payload(ring("k1"), other, sealed)


def test_every_bit_counts() -> None:
    """A change of any one bit of the wrapped key or of the data is noticed."""
    sealed = new_vault(ME).seal_payload(ring("k1"), "{}")
    parts = read_payload(sealed)
    for field in ("wrapped", "data"):
        whole = getattr(parts, field)
        for bit in range(8 * len(whole)):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(SealBroken):
                open_payload(ring("k1"), ME, payload_text(parts._replace(**{field: bytes(changed)})))


@pytest.mark.parametrize(
    "text",
    [
        '{"$sealed": "1:k1"}',
        '{"$sealed": "1:k1:AAAA:AAAA"}',
        '{"$sealed": "1:k1::"}',
        '{"$sealed": "1:k1:~~~~:AAAA"}',
        '{"$sealed": "1:a b:AAAA:AAAA"}',
        '{"$sealed": "x:k1:AAAA:AAAA"}',
        '{"$sealed": "1:k1:AAAA:AAAA", "longer than it": 1}',
        '{"$sealed": "',
        '{"$sealed": "é"}',
    ],
)
def test_a_malformed_envelope_is_broken(text: str) -> None:
    """Whatever stands where a sealed payload should be is one kind of error, never a crash."""
    assert is_sealed(text)
    with pytest.raises(SealBroken):
        open_payload(ring("k1"), ME, text)


def test_an_unknown_key_is_told_by_its_name() -> None:
    """Without the key, or without any, nothing opens; the error names the key."""
    sealed = new_vault(ME).seal_payload(ring("k1"), TEXT)
    for keys in (ring("k2"), None):
        with pytest.raises(UnknownKey, match="'k1'"):
            open_payload(keys, ME, sealed)


def test_a_newer_format_waits_for_who_knows_it() -> None:
    """What a newer release has sealed is no damage: it waits, as for a key."""
    with pytest.raises(UnknownKey) as raised:
        open_payload(ring("k1"), ME, '{"$sealed": "2:whatever"}')
    assert raised.value.key_id == "format:2"
    assert set(openable(ring("k1"))) == {"k1", "format:1"}
    assert openable(None) == []


def test_another_secret_under_the_same_name_does_not_open() -> None:
    """A key is its secret, not its name."""
    sealed = new_vault(ME).seal_payload(ring("k1"), TEXT)
    other = KeyRing([Key("k1", secret("other"), primary=True)], digest_key=secret("digest"))
    with pytest.raises(SealBroken):
        open_payload(other, ME, sealed)


def test_things_of_a_job_keep_to_their_places() -> None:
    """A checkpoint opens under its own name, and under no other."""
    vault = new_vault(ME)
    sealed = vault.seal_json("[1]", "checkpoint:a")
    assert vault.open(sealed, "checkpoint:a") == "[1]"
    text = vault.seal_text("it broke", "error")
    assert vault.open(text, "error") == "it broke"
    assert is_sealed(sealed)
    assert is_sealed_text(text)
    for item, place in ((sealed, "checkpoint:b"), (text, "traceback"), ("$sealed:1:x:y", "error"), ("[1]", "error")):
        with pytest.raises(SealBroken):
            vault.open(item, place)


def test_rotation_leaves_the_jobs_own_key() -> None:
    """A rewrapped payload opens with the new key alone, and what the job had sealed before opens with it."""
    vault = new_vault(ME)
    old = vault.seal_payload(ring("k1"), TEXT)
    step = vault.seal_json("[1]", "checkpoint:a")
    new = rewrap(ring("k2", "k1"), ME, old)
    assert new is not None
    again, text = open_payload(ring("k2"), ME, new)
    assert (text, again.open(step, "checkpoint:a")) == (TEXT, "[1]")
    assert rewrap(ring("k2", "k1"), ME, new) is None
    with pytest.raises(UnknownKey):
        rewrap(ring("k2"), ME, old)


def test_a_tenants_key_is_his_alone() -> None:
    """A tenant's jobs are sealed by his key; it opens nobody else's, even where an envelope names it."""
    keys = ring("k1", tenants={"acme": "acme-1"})
    his = ME._replace(tenant="acme")
    sealed = new_vault(his).seal_payload(keys, TEXT)
    assert read_payload(sealed).key_id == "acme-1"
    assert read_payload(new_vault(ME).seal_payload(keys, TEXT)).key_id == "k1"
    assert open_payload(keys, his, sealed)[1] == TEXT
    with pytest.raises(UnknownKey):
        open_payload(ring("k1"), his, sealed)
    forged = new_vault(ME)
    as_if_general = KeyRing([Key("acme-1", secret("acme-1"), primary=True)], digest_key=secret("digest"))
    with pytest.raises(SealBroken):
        open_payload(keys, ME, forged.seal_payload(as_if_general, TEXT))


def test_digests_are_keyed_and_apart() -> None:
    """A digest depends on the ring's digest key, tenant and kind, and on no key that rotates."""
    plain = b"\x01" * 32
    first = sealed_digest(ring("k1"), "a", "kind", plain)
    assert first == sealed_digest(ring("k2", "k1"), "a", "kind", plain)
    other = KeyRing([Key("k1", secret("k1"), primary=True)], digest_key=secret("x"))
    others = {
        sealed_digest(ring("k1"), "b", "kind", plain),
        sealed_digest(ring("k1"), "a", "other", plain),
        sealed_digest(other, "a", "kind", plain),
        sealed_digest(ring("k1", digest_keys={"a": secret("a")}), "a", "kind", plain),
        plain,
    }
    assert len(others) == 5
    assert first not in others
    vault = new_vault(ME)
    assert vault.digest(plain, "effect:a") == vault.digest(plain, "effect:a") != vault.digest(plain, "effect:b")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Key("k1", b"short"), "32 random bytes, not 5 bytes"),
        (lambda: Key("k1", "x" * 32), "32 random bytes, not str"),  # type: ignore[arg-type]
        (lambda: Key("a b", secret("x")), "key id"),
        (lambda: Key("k1", secret("x"), tenant=""), "tenant"),
        (lambda: KeyRing([], digest_key=secret("d")), "0 keys without a tenant are primary"),
        (lambda: KeyRing([Key("k1", secret("x"))], digest_key=secret("d")), "0 keys without a tenant"),
        (lambda: ring("k1", "k1"), "'k1' is given twice"),
        (
            lambda: KeyRing([Key("a", secret("a"), primary=True), Key("b", secret("b"), primary=True)], digest_key=b""),
            "2 keys without a tenant",
        ),
        (
            lambda: KeyRing([Key("a", secret("a"), primary=True), Key("b", secret("b"), tenant="t")], digest_key=b""),
            "0 keys of tenant 't'",
        ),
        (lambda: KeyRing([Key("a", secret("a"), primary=True)], digest_key=b""), "digest_key must be 32"),
        (lambda: KeyRing([Key("a", secret("a"), primary=True)], digest_key=secret("a")), "two of the secrets"),
    ],
)
def test_a_ring_that_breaks_a_rule_is_refused(make: Any, problem: str) -> None:
    """Each rule has its own sentence, and none repeats a secret."""
    with pytest.raises(SettingsError, match=problem):
        make()


def test_secrets_do_not_show() -> None:
    """No repr holds a secret, and no pickle can be made of one."""
    keys = ring("k1", tenants={"acme": "acme-1"})
    vault = Vault(ME, secret("job"))
    shown = f"{keys!r} {keys.find('k1')!r} {vault!r} {keys.primary('acme')}"
    for name in ("k1", "acme-1", "digest", "job"):
        assert repr(secret(name))[2:12] not in shown
        assert secret(name).hex() not in shown
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(keys.find("k1"))


def test_what_looks_sealed_in_clear_is_found() -> None:
    """Only a top-level field of that name is reserved; what is hidden is hidden whole."""
    assert is_reserved('{"a":1,"$sealed":2}')
    assert not is_reserved('{"a":{"$sealed":2},"b":"\\"$sealed\\""}')
    assert hidden("$sealed:1:abc") == "(sealed)"
    assert (hidden("in clear"), hidden(None)) == ("in clear", None)
