"""Two refunds to which no answer came: one has happened, the other has not."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from rehearse.following import Play
from rehearse.work import Refund
from rehearse.world import Shop
from support.invariants import check_invariants


def _make(shop: Shop) -> None:
    shop.open()
    shop.is_("fails")
    jobs = shop.submit(Refund(order="happened"), Refund(order="lost"))
    shop.ended(jobs, "failed")
    shop.variables |= {"JOB": str(jobs[0]), "OTHER": str(jobs[1]), "EFFECT": "refund"}


def _ends(shop: Shop) -> None:
    shop.ended([UUID(shop.variables["JOB"]), UUID(shop.variables["OTHER"])])
    sent = (shop.folder / "sent").read_text(encoding="ascii").split()
    assert Counter(sent) == {"happened": 1, "lost": 2}
    assert check_invariants(shop.database) == []


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={"Look": ("refund", "uncertain", "a person"), "Check": ("succeeded",)},
    acts={"Find out": lambda shop: shop.is_("fine")},
)
