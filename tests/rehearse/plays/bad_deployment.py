"""A release that fails every charge; it is rolled back, and what has failed goes again by canary."""

from __future__ import annotations

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop


def _make(shop: Shop) -> None:
    shop.open(release="bad")
    jobs = shop.submit(*(Charge(order=f"order-{number}") for number in range(12)))
    shop.ended(jobs, "failed")
    shop.variables |= {"KIND": "shop.charge", "CODE": "KeyError"}


def _roll_back(shop: Shop) -> None:
    shop.submit(Charge(order="meanwhile"))
    shop.end([shop.consumer])
    shop.consumer = shop.start_consumer()
    shop.stand([shop.consumer])


def _ends(shop: Shop) -> None:
    shop.until(lambda: shop.count("succeeded") == 13, "all have succeeded", 60)
    assert shop.database.value("SELECT count(*) FROM public.charges") == 13


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": ("KeyError", "12"),
        "Look how it goes": ("ada",),
    },
    learns={"Preview": {"TOKEN": r"--acknowledge (\S+)"}},
    acts={"Roll back": _roll_back},
)
