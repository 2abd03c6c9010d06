"""A handler that stands still in a live process, beside a consumer that is frozen with another job."""

from __future__ import annotations

import signal

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop
from support.invariants import check_invariants


def _make(shop: Shop) -> None:
    shop.open()
    shop.is_("hangs")
    [frozen] = shop.submit(Charge(order="frozen"))
    shop.until(lambda: shop.state(frozen) == "running", "the first job runs", 30)
    shop.consumer.signal(signal.SIGSTOP)
    shop.consumer.ended_by_us = True  # nobody waits for it
    second = shop.start_consumer()
    shop.stand([second])
    [stuck] = shop.submit(Charge(order="stuck"))
    shop.until(lambda: shop.state(stuck) == "running", "the second job runs", 30)
    shop.variables["JOB"] = str(stuck)
    shop.variables["FROZEN"] = str(frozen)


def _ends(shop: Shop) -> None:
    shop.is_("fine")
    frozen = shop.variables["FROZEN"]
    done = "jobs WHERE id = %s AND state = 'succeeded'"
    shop.until(lambda: shop.database.count(done, frozen) == 1, "the frozen one's job is done elsewhere", 60)
    shop.consumer.signal(signal.SIGCONT)
    refused = "SELECT count(*) FROM public.charges WHERE order_id = 'frozen'"
    shop.until(lambda: shop.database.value(refused) == 1, "it is charged once", 30)
    assert check_invariants(shop.database) == []


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": ("shop.charge", "leased until", r"quiet for"),
        "Cancel the attempt that stands still": ("cancel",),
        "Check": ("cancelled", "(?i)well|nothing"),
    },
)
