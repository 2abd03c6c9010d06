"""A provider that asks for patience, and is given it by a rate."""

from __future__ import annotations

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop


def _make(shop: Shop) -> None:
    shop.open()
    shop.is_("throttles")
    shop.submit(*(Charge(order=f"order-{number}") for number in range(60)))
    shop.variables["QUEUE"] = "charges"
    shop.until(lambda: shop.database.count("attempts WHERE error_class = 'throttled'") > 5, "it throttles", 30)


def _ends(shop: Shop) -> None:
    shop.until(lambda: shop.count("succeeded") == 60, "all have succeeded", 60)
    assert shop.database.value("SELECT count(*) FROM public.charges") == 60


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": ("charges", r'code="provider_busy"'),
        "Check that it holds": ("RATE", "20/s"),
    },
    acts={"Set a rate": lambda shop: shop.is_("fine")},
)
