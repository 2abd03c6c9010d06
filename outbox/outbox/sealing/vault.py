"""Sealing and opening: AES-256-GCM under a key of each job's own, which a key of the ring seals.

The job's key is 32 random bytes. It seals a handful of messages with random 96-bit nonces, far from the 2**32 that such
nonces bear. A key of the ring never seals with nonces of its own either: what wraps a job's key is derived from it and
the job's id (HKDF), so that a ring's key has no limit of uses that a busy service could reach.
"""

from __future__ import annotations

import hmac
import json
import os
from typing import TYPE_CHECKING

from outbox.sealing.envelope import FORMAT, Envelope, Identity, data_of, json_of, payload_text, read_payload, text_of
from outbox.sealing.ring import SECRET_BYTES, Key, KeyProvider
from outbox_schemas import SealBroken, UnknownKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Vault", "new_vault", "open_payload", "openable", "rewrap", "sealed_digest"]

_NONCE_BYTES = 12
_WRAP = b"outbox-relay wrap 1 "
_DIGEST = b"outbox-relay digest 1"
_PAYLOAD = "payload"


class Vault:
    """One job's own key: it seals and opens what belongs to the job. Safe to use from several threads."""

    def __init__(self, identity: Identity, job_key: bytes) -> None:
        self.identity = identity
        self._job_key = job_key
        self._cipher = _cipher(job_key)

    def __repr__(self) -> str:
        return f"Vault({self.identity.job_id})"

    def seal_payload(self, ring: KeyProvider, text: str) -> str:
        """Return the envelope of a payload's JSON text, with the job's key wrapped by the tenant's primary."""
        key = ring.primary(self.identity.tenant)
        return payload_text(Envelope(key.id, self._wrapped(key), self._seal(text, _PAYLOAD)))

    def seal_json(self, text: str, what: str) -> str:
        """Return a JSON text sealed for one place, for example `checkpoint:step`."""
        return json_of(self._seal(text, what))

    def seal_text(self, text: str, what: str) -> str:
        """Return a text sealed for one place, for example `error`."""
        return text_of(self._seal(text, what))

    def open(self, sealed: str, what: str) -> str:
        """Return what `seal_json` or `seal_text` was given. Raises `SealBroken` if it was not sealed for this place."""
        return self._open(data_of(sealed, what), what)

    def digest(self, plain: bytes, what: str) -> bytes:
        """Return a digest of this job's alone for a digest in clear: nobody without the keys can try guesses on it."""
        message = self.identity.bound_to(what) + plain
        return hmac.digest(_expanded(self._job_key, _DIGEST), message, "sha256")

    def _open_envelope(self, envelope: Envelope) -> str:
        return self._open(envelope.data, _PAYLOAD)

    def _seal(self, text: str, what: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), self.identity.bound_to(what))

    def _open(self, data: bytes, what: str) -> str:
        return _decrypted(self._cipher, data, self.identity.bound_to(what), what).decode()

    def _wrapped(self, key: Key) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        wrapper = _cipher(_expanded(key.reveal(), _WRAP + self.identity.job_id.bytes))
        return nonce + wrapper.encrypt(nonce, self._job_key, self.identity.bound_to(f"key:{key.id}"))


def new_vault(identity: Identity) -> Vault:
    """Return a vault with a new key, for a job that is about to be written."""
    return Vault(identity, os.urandom(SECRET_BYTES))


def open_payload(ring: KeyProvider | None, identity: Identity, text: str) -> tuple[Vault, str]:
    """Return a sealed payload's JSON text, and what opens the rest of the job.

    Raises:
        UnknownKey: the key is not known here (without a ring none is), or a newer release has sealed it.
        SealBroken: it was changed, or belongs to another job, kind, version or tenant.
    """
    envelope = read_payload(text)
    vault = _unwrapped(ring, identity, envelope)
    return vault, vault._open_envelope(envelope)  # noqa: SLF001 - the same module's


def rewrap(ring: KeyProvider, identity: Identity, text: str) -> str | None:
    """Return a sealed payload with its job's key under the tenant's primary, or None if it is there. What the job's key
    has sealed, here and elsewhere, stays as it is. Raises as `open_payload`.
    """
    envelope = read_payload(text)
    primary = ring.primary(identity.tenant)
    if envelope.key_id == primary.id:
        return None
    vault = _unwrapped(ring, identity, envelope)
    vault._open_envelope(envelope)  # noqa: SLF001 - what does not open now is left for whoever looks into it
    return payload_text(envelope._replace(key_id=primary.id, wrapped=vault._wrapped(primary)))  # noqa: SLF001


def sealed_digest(ring: KeyProvider, tenant: str, kind: str, plain: bytes) -> bytes:
    """Return the keyed digest of a payload's digest: of a few possible payloads, nobody can find out which it was."""
    message = json.dumps(["outbox-relay digest", FORMAT, tenant, kind]).encode() + plain
    return hmac.digest(ring.digest_key(tenant), message, "sha256")


def openable(ring: KeyProvider | None) -> list[str]:
    """Return what jobs may wait for that this process can give: its keys, and the format that it reads."""
    return [] if ring is None else [*ring.key_ids(), f"format:{FORMAT}"]


def _unwrapped(ring: KeyProvider | None, identity: Identity, envelope: Envelope) -> Vault:
    key = ring.find(envelope.key_id) if ring is not None else None
    if key is None:
        raise UnknownKey(envelope.key_id)
    if not key.fits(identity.tenant):
        raise SealBroken(_PAYLOAD)
    wrapper = _cipher(_expanded(key.reveal(), _WRAP + identity.job_id.bytes))
    bound_to = identity.bound_to(f"key:{key.id}")
    return Vault(identity, _decrypted(wrapper, envelope.wrapped, bound_to, _PAYLOAD))


def _decrypted(cipher: AESGCM, data: bytes, bound_to: bytes, what: str) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only where there are keys

    try:
        return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound_to)
    except (InvalidTag, ValueError):  # a nonce that is too short is a ValueError
        raise SealBroken(what) from None


def _cipher(secret: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    return AESGCM(secret)


def _expanded(secret: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand  # noqa: PLC0415

    return HKDFExpand(SHA256(), SECRET_BYTES, info).derive(secret)
