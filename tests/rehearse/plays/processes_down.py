"""A job that nobody runs: its consumer has ended, and another had been killed."""

from __future__ import annotations

from uuid import UUID

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop


def _make(shop: Shop) -> None:
    shop.open()
    shop.ended(shop.submit(Charge(order="before")))
    shop.end([shop.consumer])
    [job] = shop.submit(Charge(order="waits"))
    shop.variables["JOB"] = str(job)


def _start(shop: Shop) -> None:
    shop.consumer = shop.start_consumer()
    shop.stand([shop.consumer])


def _ends(shop: Shop) -> None:
    shop.ended([UUID(shop.variables["JOB"])])
    assert shop.database.value("SELECT count(*) FROM public.charges") == 2


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={"Look": ("a consumer that can run it", "charges"), "Check": ("succeeded",)},
    acts={"Start it": _start},
)
