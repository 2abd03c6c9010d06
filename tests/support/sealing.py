"""Rings of keys for tests, and a search for what should be sealed through every row of a database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outbox.sealing import Key, KeyRing, use
from outbox.sealing.ring import KeyProvider
from support.database import Database

MARK = b"planted-key:"
"""How every key of a test begins, so that `make secrets` finds all of them by one word (a multiple of three bytes)."""


def secret(name: str) -> bytes:
    """Return the secret of a test's key: the same for the same name."""
    return MARK + hashlib.sha256(name.encode()).digest()[: 32 - len(MARK)]


def ring(primary: str, *others: str, tenants: dict[str, str] | None = None, **options: Any) -> KeyRing:
    """Return a ring with one key that seals and others that only open; `tenants` names keys of tenants' own."""
    keys = [Key(primary, secret(primary), primary=True), *(Key(name, secret(name)) for name in others)]
    keys += [Key(name, secret(name), tenant=tenant, primary=True) for tenant, name in (tenants or {}).items()]
    return KeyRing(keys, digest_key=secret("digest"), **options)


@contextmanager
def using(provider: KeyProvider | None) -> Iterator[None]:
    """Have the process use these keys for a while."""
    use(provider)
    try:
        yield
    finally:
        use(None)


def rows_with(database: Database, text: str) -> list[str]:
    """Return the tables of the installation that hold a text in any column of any row, in clear or as bytes' hex."""
    tables = [
        name
        for (name,) in database.rows(
            "SELECT c.relname FROM pg_class AS c WHERE c.relkind = 'r' AND c.relnamespace = %s::regnamespace",
            database.schema,
        )
    ]
    wanted = (f"%{text}%", f"%{text.encode().hex()}%")
    query = 'SELECT count(*) FROM {{s}}."{}" AS t WHERE t::text LIKE %s OR t::text LIKE %s'
    return [name for name in sorted(tables) if database.value(query.format(name), *wanted)]
