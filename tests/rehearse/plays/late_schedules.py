"""A schedule of every second while no relay lives."""

from __future__ import annotations

from rehearse.following import Play
from rehearse.world import Shop
from support.ground import NotInTime

_OF = "--kind shop.digest --module rehearse.work --missed latest"
_ADD = f"outbox schedules add digest --every 1s {_OF} --by ada --reason daily"
_MADE = "jobs WHERE kind = 'shop.digest'"


def _make(shop: Shop) -> None:
    shop.open()
    code, shown = shop.run(_ADD)
    if code:
        raise NotInTime(shown)
    shop.until(lambda: shop.database.count(_MADE) >= 2, "the schedule makes jobs", 30)
    shop.relay.kill()
    shop.variables["SCHEDULE"] = "digest"
    shop.variables["BEFORE"] = str(shop.database.count(_MADE))
    late = "schedules WHERE wake_at < {s}.clock() - interval '3 seconds'"
    shop.until(lambda: shop.database.count(late) == 1, "the schedule is late", 30)


def _start(shop: Shop) -> None:
    shop.relay = shop.start_relay()
    shop.stand([shop.relay])


def _ends(shop: Shop) -> None:
    before = int(shop.variables["BEFORE"])
    shop.until(lambda: shop.database.count(_MADE) > before + 2, "the schedule makes jobs again", 30)
    assert shop.database.count(f"{_MADE} GROUP BY logical_key HAVING count(*) > 1") == 0


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={"Look": ("digest", "relay"), "Look what was missed": ("digest",)},
    acts={"Start a relay": _start},
)
