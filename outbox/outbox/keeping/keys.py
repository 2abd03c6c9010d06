"""What concurrency keys need of relays and consumers: a look at those for which jobs are set aside, turn by turn.

Whoever frees a slot puts the next job of its key back in line, in the same transaction. Here is found what slips
through that: a job that was being set aside in that very moment, the slot of a lease that has expired, or one
behind a next job that can't go. Any number of processes may do it at once: each row is moved by one of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from outbox.database.link import Link

__all__ = ["KEY_NEXT", "KEY_WAITS", "KeyKeeper", "KeysKept"]

KEY_WAITS = "waits for its key"
"""What the last error of a row says that is set aside for its concurrency key, as the schema's functions write it."""
KEY_NEXT = "next of its key"
"""What it says of one that has been put back in line since, and not yet been released. For five seconds it counts."""

_PIECE = 200
# A turn ends about then, for the same thread takes expired leases back: with very many keys each is seen less often.
_TURN_S = 0.05
_BEGINNING = ("", "", "")


@dataclass(frozen=True, slots=True)
class KeysKept:
    """What a turn has done: jobs put back in line, and keys looked at. `ended`: it came to the end of the keys."""

    put_back: int = 0
    looked_at: int = 0
    ended: bool = True


class KeyKeeper:
    """Looks through the keys for which jobs wait, and remembers where it left off. For one thread."""

    def __init__(self) -> None:
        self._after = _BEGINNING

    def keep(self, link: Link, *, turn_s: float = _TURN_S) -> KeysKept:
        """Take one turn, of about `turn_s` seconds at most. One index probe where no job waits for its key."""
        until = time.monotonic() + turn_s
        put_back = looked_at = 0
        while True:
            key, group, tenant = self._after
            rows = link.run("free_keys", limit_key=key, limit_group=group, tenant=tenant, most=_PIECE)
            put_back += sum(row.moved for row in rows)
            looked_at += len(rows)
            ended = len(rows) < _PIECE
            last = rows[-1] if rows else None
            self._after = _BEGINNING if ended or last is None else (last.limit_key, last.limit_group, last.tenant)
            if ended or time.monotonic() >= until:
                return KeysKept(put_back, looked_at, ended)
