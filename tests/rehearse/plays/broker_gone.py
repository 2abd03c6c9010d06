"""A broker that is killed, and comes back without its queues."""

from __future__ import annotations

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop


def _make(shop: Shop) -> None:
    shop.open()
    shop.ended(shop.submit(Charge(order="before")))
    shop.ground.rabbitmq.kill()
    shop.ended(shop.submit(Charge(order="meanwhile")))


def _bring_back(shop: Shop) -> None:
    broker = shop.ground.rabbitmq
    broker.start()
    broker.ctl("stop_app")
    broker.ctl("reset")
    broker.ctl("start_app")


def _ends(shop: Shop) -> None:
    shop.ended(shop.submit(Charge(order="after")))
    assert shop.database.value("SELECT count(*) FROM public.charges") == 3


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": ("failing.*broker|broker.*failing|broker", "outbox_broker_away_seconds [1-9]"),
        "Check": ("ready", "outbox_broker_away_seconds 0"),
    },
    acts={"Bring the broker back": _bring_back},
)
