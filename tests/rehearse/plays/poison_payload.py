"""Two orders whose amounts no try can read: one is put right, one is refunded by hand."""

from __future__ import annotations

from uuid import UUID

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop


def _make(shop: Shop) -> None:
    shop.open()
    jobs = shop.submit(Charge(order="good"), Charge(order="comma", amount="12,50"), Charge(order="lost", amount="?"))
    shop.ended(jobs[:1])
    shop.ended(jobs[1:], "failed")
    shop.variables |= {
        "JOB": str(jobs[1]),
        "OTHER": str(jobs[2]),
        "KIND": "shop.charge",
        "MODULE": "rehearse.work",
    }


def _ends(shop: Shop) -> None:
    shop.ended([UUID(shop.variables["JOB"])])
    assert shop.state(UUID(shop.variables["OTHER"])) == "failed"


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": ("ValueError", "shop.charge"),
        "Check": ("succeeded",),
    },
    learns={"Put it right and run it again": {"TOKEN": r"--acknowledge (\S+)"}},
)
