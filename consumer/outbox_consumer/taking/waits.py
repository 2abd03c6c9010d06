"""How long jobs waited to be claimed, parted at their hint."""

from __future__ import annotations

from collections.abc import Iterable

from outbox.leases.leasing import Claimed
from outbox.telemetry.series import Histogram

__all__ = ["Waits"]


class Waits:
    """Counts for each claimed job how long it was due until its hint went out, and how long that was out."""

    def __init__(self, release: Histogram, claim: Histogram) -> None:
        self._release = release
        self._claim = claim

    def observe(self, jobs: Iterable[Claimed]) -> None:
        """Count jobs that have just been claimed."""
        for job in jobs:
            if job.release_s is not None and job.claim_s is not None:
                # By the database's clock, which may go back.
                self._release.observe(max(job.release_s, 0.0))
                self._claim.observe(max(job.claim_s, 0.0))
