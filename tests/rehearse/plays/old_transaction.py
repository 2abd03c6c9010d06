"""A session that has begun a transaction, and was forgotten."""

from __future__ import annotations

import psycopg

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop


def _make(shop: Shop) -> None:
    shop.open()
    forgotten = shop.database.connect(application_name="report", autocommit=False)
    forgotten.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    forgotten.execute("SELECT count(*) FROM outbox.jobs")
    shop.variables["PID"] = str(forgotten.info.backend_pid)
    shop.ended(shop.submit(Charge(order="beside it")))


def _ends(shop: Shop) -> None:
    shop.ended(shop.submit(Charge(order="after it")))


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": (r"outbox_database_oldest_transaction_seconds [1-9]", r"\d+ \| .*report .*idle in transaction"),
        "End it": ("t",),
    },
)
