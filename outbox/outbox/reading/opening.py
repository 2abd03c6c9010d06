"""A sealed job in clear, for a person who has the keys: every look is audited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from outbox.database.link import Link
from outbox.reading.jobs import PAGE
from outbox.sealing.envelope import Identity, is_sealed, is_sealed_text
from outbox.sealing.ring import KeyProvider
from outbox.sealing.vault import Vault, open_payload
from outbox.texts.actors import check_actor
from outbox_schemas import JobNotFound, SealBroken

__all__ = ["Opened", "OpenedThing", "open_job"]

BROKEN = "(it does not open: it was changed, or belongs to another job or place)"


@dataclass(frozen=True, slots=True)
class OpenedThing:
    """One thing of a job that was sealed, in clear: its name for people, and its text (JSON but for errors)."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Opened:
    """What is sealed of a job, in clear; nothing, for a job in clear. `is_cut`: it has more than was asked for."""

    things: list[OpenedThing]
    is_cut: bool = False


def open_job(link: Link, ring: KeyProvider | None, job_id: UUID, *, by: str, reason: str, limit: int = PAGE) -> Opened:
    """Return what of a job is sealed, of its newest `limit` attempts, and of as many checkpoints and effects by name.
    The look is audited in the link's transaction: commit it before you show what you got.

    Raises:
        NameRefused: `by` or `reason` is empty, unprintable or too long.
        JobNotFound: no job has this id.
        UnknownKey: its key is not among these.
        SealBroken: its payload does not open. (Other things that don't are told as such in their place.)
    """
    check_actor(by, reason)
    rows = link.run("open_job", job_id=job_id, actor=by, reason=reason, batch=limit)
    if not rows:
        raise JobNotFound(job_id)
    first = rows[0]
    if not is_sealed(first.text):
        return Opened([])
    vault, payload = open_payload(ring, Identity(first.id, first.tenant, first.kind, first.version), first.text)
    sealed = [row for row in rows[1:] if is_sealed(row.text) or is_sealed_text(row.text)]
    things = [OpenedThing(first.name, payload), *(OpenedThing(row.name, _opened(vault, row)) for row in sealed)]
    return Opened(things, first.is_cut)


def _opened(vault: Vault, row: Any) -> str:
    try:
        return vault.open(row.text, row.place)
    except SealBroken:
        return BROKEN
