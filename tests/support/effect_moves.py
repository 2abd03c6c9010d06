"""The part of the model of an installation that is about external effects: what attempts, old and new, write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from outbox.database.link import Link
from outbox.leases.effects import EffectBook, Remote, Written
from outbox.leases.ending import complete, unsettled
from outbox.leases.leasing import Lease
from outbox_schemas import EffectState
from support.database import Database

NAMES = ("charge", "mail")
OPEN = (EffectState.PENDING, EffectState.UNCERTAIN)
_SETTLES: list[Any] = ["send", "reconcile", "policy", EffectState.UNCERTAIN, EffectState.NOT_DONE]


@dataclass
class Announced:
    """What the model knows of one effect."""

    state: EffectState
    call: UUID


class EffectMoves(RuleBasedStateMachine):
    """Effects begun, sent again and settled, with right and stale tokens."""

    database: Database
    engine: sa.Engine
    link: Link
    leases: list[Lease]
    numbers: dict[UUID, int]
    effects: dict[UUID, dict[str, Announced]]

    def owned(self, lease: Lease) -> bool:
        """Tell whether the token is the one that counts."""
        raise NotImplementedError

    def is_open(self, job_id: UUID) -> bool:
        """Tell whether nobody knows of one of a job's effects whether it has happened."""
        return any(effect.state in OPEN for effect in self.effects.get(job_id, {}).values())

    def _page(self, data: st.DataObject, name: str) -> tuple[Lease, EffectBook, Announced | None]:
        lease = data.draw(st.sampled_from(self.leases))
        book = EffectBook(self.database.statements, lease, self.numbers[lease.token], name)
        return lease, book, self.effects.get(lease.job_id, {}).get(name)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def begin_effect(self, data: st.DataObject, name: str) -> None:
        """Announce an effect, or learn what is on record of it."""
        self.announce(data.draw(st.sampled_from(self.leases)), name)

    def announce(self, lease: Lease, name: str) -> None:
        """Begin an effect of this attempt."""
        known, call = self.effects.get(lease.job_id, {}).get(name), uuid4()
        book = EffectBook(self.database.statements, lease, self.numbers[lease.token], name)
        with self.engine.begin() as connection:
            found = book.begin(connection, b"x", call)
        assert found.held == self.owned(lease)
        if not found.held:
            return
        if known is None:
            self.effects.setdefault(lease.job_id, {})[name] = known = Announced(EffectState.PENDING, call)
        assert (found.begun, found.state, found.call) == (known.call == call, known.state, known.call)

    @precondition(lambda self: any(self.owned(lease) for lease in self.leases))
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def try_to_succeed_amid_an_effect(self, data: st.DataObject, name: str) -> None:
        """Begin an effect and end its attempt in success at once: as long as one is open, nothing comes of that."""
        lease = data.draw(st.sampled_from([lease for lease in self.leases if self.owned(lease)]))
        book, call = EffectBook(self.database.statements, lease, self.numbers[lease.token], name), uuid4()
        with self.engine.begin() as connection:
            if book.begin(connection, b"x", call).begun:
                self.effects.setdefault(lease.job_id, {})[name] = Announced(EffectState.PENDING, call)
        if self.is_open(lease.job_id):
            assert complete(self.link, [lease]) == set()

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), name=st.sampled_from(NAMES), is_seen=st.booleans())
    def announce_effect_again(self, data: st.DataObject, name: str, is_seen: bool) -> None:
        """Announce one anew that has not surely happened, if it is as it was seen."""
        lease, book, known = self._page(data, name)
        seen, call = known.call if known is not None and is_seen else uuid4(), uuid4()
        with self.engine.begin() as connection:
            written = book.again(connection, seen, call)
        fits = known is not None and known.state is not EffectState.CONFIRMED and seen == known.call
        assert written == Written(self.owned(lease), self.owned(lease) and fits)
        if written.written and known is not None:
            known.state, known.call = EffectState.PENDING, call

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), name=st.sampled_from(NAMES), how=st.sampled_from(_SETTLES), is_seen=st.booleans())
    def settle_effect(self, data: st.DataObject, name: str, how: Any, is_seen: bool) -> None:
        """Confirm an effect, in one of the ways, or leave it uncertain or not done."""
        lease, book, known = self._page(data, name)
        seen = known.call if known is not None and is_seen else uuid4()
        confirms = not isinstance(how, EffectState)
        with self.engine.begin() as connection:
            if confirms:
                written = book.confirm(connection, seen, how, Remote("1"))
            else:
                written = book.leave(connection, seen, how, "a.code", "no answer")
        able = {EffectState.CONFIRMED, *OPEN} if confirms else {*OPEN}
        fits = known is not None and known.state in able and seen == known.call
        assert written == Written(self.owned(lease), self.owned(lease) and fits)
        if written.written and known is not None:
            known.state = EffectState.CONFIRMED if confirms else how

    @precondition(lambda self: self.leases)
    @rule()
    def look_for_open_effects(self) -> None:
        """Tell owners what keeps their attempts from success."""
        with_open = {lease.job_id for lease in self.leases if self.owned(lease) and self.is_open(lease.job_id)}
        link = self.database.link("test/look")
        assert unsettled(link, self.leases).keys() == with_open
        link.close()
