"""A database whose clock is ten minutes ahead, and is set right."""

from __future__ import annotations

from datetime import timedelta

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop

_AHEAD = timedelta(minutes=10)


def _make(shop: Shop) -> None:
    shop.variables = {"DEFINITION": str(shop.database.value("SELECT pg_get_functiondef('{s}.clock'::regproc)"))}
    shop.database.clock.advance(_AHEAD.total_seconds())
    shop.open()
    shop.ended(shop.submit(Charge(order="before")))


def _set(shop: Shop) -> None:
    shop.database.raw.execute(shop.variables["DEFINITION"].encode())


def _ends(shop: Shop) -> None:
    shop.ended(shop.submit(Charge(order="after")))


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={"Look": ("clock_skew", "outbox_database_clock_ahead_seconds (5|6)"), "Resume": ("resumed",)},
    acts={"Set the clock": _set},
)
