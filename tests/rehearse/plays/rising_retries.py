"""A provider that is down, and comes back."""

from __future__ import annotations

from uuid import UUID

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop


def _make(shop: Shop) -> None:
    shop.open()
    shop.is_("fails")
    jobs = shop.submit(*(Charge(order=f"order-{number}") for number in range(5)))
    shop.variables |= {"JOB": str(jobs[0]), "KIND": "shop.charge"}
    retried = "attempts WHERE outcome = 'retried'"
    shop.until(lambda: shop.database.count(retried) > 5, "attempts are retried", 30)


def _ends(shop: Shop) -> None:
    shop.ended([UUID(shop.variables["JOB"])])
    shop.until(lambda: shop.count("succeeded") == 5, "all have succeeded", 60)
    assert shop.database.value("SELECT count(*) FROM public.charges") == 5


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": (r'code="provider_away".*outcome="retried"', "its next try|running", "provider is away"),
        "Pause the kind": ("paused",),
        "Resume": ("resumed|not paused",),
    },
    acts={"Mend the dependency": lambda shop: shop.is_("fine")},
)
