"""The one key by which another side knows an effect, the same for every attempt of its job."""

from __future__ import annotations

from uuid import UUID, uuid5

__all__ = ["provider_key"]


def provider_key(job_id: UUID, name: str) -> UUID:
    """Return the provider's key of one effect: 36 characters of ASCII as text, fit for any header. Pure, and never to
    change: an effect that was sent under an older release is found again by it.
    """
    return uuid5(job_id, name)
