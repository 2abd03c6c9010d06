"""The keys that a process has: ids, secrets, and which of them seals for whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from typing import Protocol

from outbox_schemas import NameRefused, SettingsError
from outbox_schemas.names import check_name, check_tenant

__all__ = ["SECRET_BYTES", "Key", "KeyProvider", "KeyRing"]

SECRET_BYTES = 32


class Key:
    """One key of a ring. Neither its repr nor a pickle holds the secret.

    Args:
        key_id: its public name, which stands in clear in every envelope: 1 to 100 letters, digits and . _ -
        secret: 32 random bytes.
        tenant: whose jobs alone it seals and opens; None: everybody's who has no key of his own.
        primary: whether it seals. Others only open what they have sealed before.
    """

    __slots__ = ("_secret", "id", "primary", "tenant")

    def __init__(self, key_id: str, secret: bytes, *, tenant: str | None = None, primary: bool = False) -> None:
        try:
            self.id = check_name("key id", key_id)
            self.tenant = None if tenant is None else check_tenant(tenant)
        except NameRefused as error:
            raise SettingsError(f"keys: {error}") from None
        self._secret = checked_secret(secret, f"key {self.id!r}")
        self.primary = primary

    def __repr__(self) -> str:
        return f"Key({self.id!r}, tenant={self.tenant!r}, primary={self.primary})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a key can't be pickled: its secret stays in its process")

    def reveal(self) -> bytes:
        """Return the secret. For what seals and opens alone."""
        return self._secret

    def fits(self, tenant: str) -> bool:
        """Tell whether it may seal and open this tenant's jobs."""
        return self.tenant is None or self.tenant == tenant


class KeyProvider(Protocol):
    """Where keys come from; `KeyRing` is one. Yours may get them from a key management service.

    It is asked on the threads and loops on which handlers run, and for every sealed job: answer from memory.
    """

    @property
    def seal_all(self) -> bool:
        """Whether every payload is sealed, or only those whose class says `sealed = True`."""

    def primary(self, tenant: str) -> Key:
        """Return the key that seals a tenant's jobs."""

    def find(self, key_id: str) -> Key | None:
        """Return a key by its id, or None if it is not known here (or not any more)."""

    def key_ids(self) -> Collection[str]:
        """Return the ids of all keys that `find` knows: sealed jobs that wait for another key are left to others."""

    def digest_key(self, tenant: str) -> bytes:
        """Return the 32 bytes under which the arguments of a tenant's sealed jobs are compared. Never to be changed."""


class KeyRing:
    """A fixed set of keys.

    Args:
        keys: one of them is the general primary; a tenant that has keys of his own has a primary of his own.
        digest_key: 32 random bytes, apart from all keys. It tells whether a logical key comes again with the same
            arguments, across all rotations: it stays for ever.
        digest_keys: the same for single tenants, to be destroyed with their keys.
        seal_all: whether every payload is sealed, or only those whose class says `sealed = True`.

    Raises `SettingsError` where these rules are broken, or if the library is not installed.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        *,
        digest_key: bytes,
        digest_keys: Mapping[str, bytes] | None = None,
        seal_all: bool = False,
    ) -> None:
        if find_spec("cryptography") is None:
            raise SettingsError("keys: sealing needs the library; pip install 'outbox-relay[encryption]'")
        self.seal_all = seal_all
        self._keys: dict[str, Key] = {}
        for key in keys:
            if self._keys.setdefault(key.id, key) is not key:
                raise SettingsError(f"keys: the id {key.id!r} is given twice; ids are never used again")
        tenants = dict.fromkeys((None, *(key.tenant for key in self._all())))
        self._primaries = {tenant: self._primary_of(tenant) for tenant in tenants}
        self._digest_key = checked_secret(digest_key, "digest_key")
        self._digest_keys = {
            check_tenant(tenant): checked_secret(secret, f"digest_keys.{tenant}")
            for tenant, secret in (digest_keys or {}).items()
        }
        self._check_apart()

    def primary(self, tenant: str) -> Key:
        """Return the key that seals a tenant's jobs: its own, or else the general one."""
        return self._primaries.get(tenant) or self._primaries[None]

    def find(self, key_id: str) -> Key | None:
        """Return a key by its id, or None."""
        return self._keys.get(key_id)

    def key_ids(self) -> Collection[str]:
        """Return the ids of all keys."""
        return self._keys.keys()

    def digest_key(self, tenant: str) -> bytes:
        """Return what a tenant's arguments are compared under."""
        return self._digest_keys.get(tenant, self._digest_key)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(sorted(self._keys))})"

    def _all(self) -> Iterable[Key]:
        return self._keys.values()

    def _primary_of(self, tenant: str | None) -> Key:
        found = [key for key in self._all() if key.tenant == tenant and key.primary]
        if len(found) == 1:
            return found[0]
        whose = "without a tenant" if tenant is None else f"of tenant {tenant!r}"
        raise SettingsError(f"keys: {len(found)} keys {whose} are primary; mark exactly one `primary = true`")

    def _check_apart(self) -> None:
        digests = [self._digest_key, *self._digest_keys.values()]
        secrets = [*(key.reveal() for key in self._all()), *digests]
        if len(set(secrets)) < len(secrets):
            raise SettingsError("keys: two of the secrets are the same; draw each anew")


def checked_secret(secret: bytes, what: str) -> bytes:
    """Return 32 bytes, or raise `SettingsError` that says how many there are."""
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        nature = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
        raise SettingsError(f"keys: {what} must be {SECRET_BYTES} random bytes, not {nature}")
    return secret
