"""Which tenants have come to a busy queue just now, so that their first jobs go ahead of what is out. Pure policy.

What is out for the others was released while these had nothing due. Were theirs to stand behind it, an idle tenant's
share would be handed back only once all that was lent is through.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Joiners"]

# For so long a tenant that stays may go ahead: what was out when it came is through by then.
JOINING_S = 0.5
# Tenants remembered of one queue. Without memory all would seem to have been there.
MOST = 10_000
# Where one look doesn't show all tenants, one that was not shown for so long has gone. After as long without a look
# nobody knows who has.
GONE_S = 2.0


class Joiners:
    """One queue's tenants with something due, and since when each has had so without a break."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._looked_at: float | None = None

    def seen(self, due: Iterable[str], now: float, *, whole: bool) -> set[str]:
        """Take in which tenants have something due (`whole`: there are no others), and return those that have come just
        now. Whoever is there at the first look has been there before.
        """
        due = set(due)
        if len(self._since) + len(due) > MOST or (self._looked_at is not None and now - self._looked_at > GONE_S):
            self._forget()
        known, self._looked_at = self._looked_at is not None, now
        for tenant in due:
            if tenant not in self._since or now - self._seen[tenant] > GONE_S:
                self._since[tenant] = now if known else float("-inf")
            self._seen[tenant] = now
        for tenant in [one for one in self._since if one not in due] if whole else []:
            del self._since[tenant], self._seen[tenant]
        return {tenant for tenant in due if now - self._since[tenant] < JOINING_S}

    def _forget(self) -> None:
        self._since.clear()
        self._seen.clear()
        self._looked_at = None
