"""The look into the database every few seconds."""

from __future__ import annotations

from outbox.database.link import Link
from outbox.telemetry.probe import Probe
from support.database import Database
from support.waiting import until


def test_a_look_that_fails_is_put_off_and_costs_the_others_nothing(database: Database) -> None:
    """It is tried ever less often; the sign of life and the other looks go on at their pace."""
    failed, went_well = [], []

    def fails(_link: Link) -> None:
        failed.append(1)
        raise ValueError("no")

    probe = Probe(
        database.link(), logger="outbox.test", looks=[fails, lambda _link: went_well.append(1)], every_s=0.0001
    )
    probe.start()
    until(lambda: len(went_well) >= 300)
    assert probe.reached()
    probe.close(5)
    assert 1 <= len(failed) <= len(went_well) / 10
