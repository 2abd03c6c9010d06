"""Payloads with concurrency keys, and short ways to see where their jobs stand."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from outbox.database.link import Link
from outbox.leases.leasing import Ability, Claimed, claim
from support.database import Database
from support.jobs import LEASE_S, MAX_ATTEMPTS, WORKER, Note

AbilityList = Sequence[Ability]


class Keyed(Note):
    """Jobs in any order, one of a key at once."""

    kind: ClassVar[str] = "test.keyed"
    limit_group: ClassVar[str | None] = "shared"

    on: str | None = "account 1"

    def limit_key(self) -> str | None:
        """Return the key as given."""
        return self.on


class Pair(Keyed):
    """Two of a key at once, which share their keys with the kind above."""

    kind: ClassVar[str] = "test.pair"
    limit_max: ClassVar[int] = 2


class Ordered(Keyed):
    """One after the other; a failed one is skipped."""

    kind: ClassVar[str] = "test.ordered"
    ordered: ClassVar[bool] = True
    limit_group: ClassVar[str | None] = None


class Blocking(Ordered):
    """One after the other; a failed one blocks its key."""

    kind: ClassVar[str] = "test.blocking"
    after_failure: ClassVar = "block"


KINDS = (Note, Keyed, Pair, Ordered, Blocking)
ABLE = [Ability(cls.kind, 1, LEASE_S, MAX_ATTEMPTS, "handler-1") for cls in KINDS]


def of(cls: type[Keyed], count: int, on: str | None = "account 1") -> list[Keyed]:
    """Return payloads with logical keys of their own and one concurrency key."""
    start = uuid.uuid4().hex
    return [cls(key=f"{start}/{number:05}", on=on) for number in range(count)]


def take(link: Link, job_ids: Sequence[UUID], able: AbilityList = ABLE) -> list[Claimed]:
    """Claim with the ability for all kinds."""
    return claim(link, job_ids, able, WORKER)


def places(database: Database) -> dict[str, int]:
    """Return how many rows stand where: aside, next, or their phase."""
    return dict(
        database.rows(
            "SELECT CASE last_error WHEN 'waits for its key' THEN 'aside' WHEN 'next of its key' THEN 'next' "
            "ELSE phase END, count(*)::int FROM {s}.outbox GROUP BY 1"
        )
    )
