"""Instants that a hand may write and no arithmetic bears: those of one row stop neither counts nor loops of others."""

from __future__ import annotations

import pytest

from outbox.database.link import Link
from outbox.keeping.time import recover_leases
from outbox.leases.ending import complete, lease_ends
from outbox.leases.leasing import claim
from outbox.reading.queue_figures import FigureKeeper, list_figures
from outbox.reading.queues import held_up
from outbox.reading.running import list_running
from outbox.retention.erasing import preview, purge, rules_of
from outbox.settings.retention import RetentionSettings
from support.database import Database
from support.jobs import ABILITIES, WORKER, OtherNote, release_all, running
from support.sets import due, ids_of, wait_for

LATE = ("infinity", "294276-12-31")
EARLY = ("-infinity", "4714-11-24 BC")
DAY_S = 86_400


@pytest.mark.parametrize("value", [*LATE, *EARLY])
@pytest.mark.parametrize("what", ["succeeded", "succeeded_payload"])
def test_an_end_at_no_time_stops_no_purge(database: Database, link: Link, value: str, what: str) -> None:
    """The others of its stretch go when their time is over, the preview counts them, and so does it if it is past."""
    claimed = running(database, link, 3)
    complete(link, [item.lease for item in claimed])
    database.rows("SET session_replication_role = replica")
    database.rows("UPDATE {s}.jobs SET finished_at = %s WHERE id = %s", value, claimed[1].lease.job_id)
    database.clock.advance(31 * DAY_S)
    rules = rules_of(RetentionSettings.model_validate({what: "30d"}))
    expected = 3 if value in EARLY else 2
    for found in (look(link, rules, batch=100) for look in (preview, purge)):
        assert found.purged + found.erased == expected


@pytest.mark.parametrize("value", [*LATE, *EARLY])
def test_a_start_at_no_time_stops_no_count(database: Database, link: Link, value: str) -> None:
    """What runs is counted and shown, with the one of which nobody knows for how long."""
    claimed = running(database, link, 3)
    database.rows("UPDATE {s}.jobs SET lease_started_at = %s WHERE id = %s", value, claimed[1].lease.job_id)
    assert FigureKeeper().keep(link)
    assert [figures.running for figures in list_figures(link)] == [3]
    shown = {job.id: job.for_s for job in list_running(link)}
    assert shown.keys() == {item.lease.job_id for item in claimed}
    assert (shown[claimed[1].lease.job_id] is None) is ("infinity" in value)


@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_an_attempt_that_ended_at_no_time_hides_no_other_end(database: Database, link: Link, value: str) -> None:
    """Heartbeats ask for many at once how they ended."""
    claimed = running(database, link, 2)
    leases = [item.lease for item in claimed]
    complete(link, leases)
    database.rows("SET session_replication_role = replica")
    database.rows("UPDATE {s}.attempts SET ended_at = %s WHERE job_id = %s", value, leases[0].job_id)
    assert lease_ends(link, leases).keys() == {lease.token for lease in leases}


@pytest.mark.parametrize("value", [*LATE, *EARLY])
def test_an_attempt_that_ended_at_no_time_stops_no_other_claim(database: Database, link: Link, value: str) -> None:
    """Counts of what waits and runs ask when the attempt before ended, and so does a claim."""
    ids = ids_of(running(database, link, 2))
    database.clock.advance(3600)
    assert len(recover_leases(link)) == 2
    database.rows("SET session_replication_role = replica")
    database.rows("UPDATE {s}.attempts SET ended_at = %s WHERE job_id = %s", value, ids[0])
    database.rows("UPDATE {s}.outbox SET last_error = 'hint lost'")
    release_all(link)
    assert held_up(link, ["notes"]).keys() == {"notes"}
    assert FigureKeeper().keep(link)
    assert len(claim(link, ids, ABILITIES, WORKER, timed=True)) == 2
    database.clock.advance(10)
    assert FigureKeeper().keep(link)


@pytest.mark.parametrize("value", LATE)
def test_a_set_whose_job_is_to_run_at_no_time_holds_up_no_other_set(database: Database, link: Link, value: str) -> None:
    """Complete sets are closed together."""
    claimed = running(database, link, 1)
    never, waiting = (wait_for(database, ids_of(claimed), OtherNote(key=key)) for key in ("never", "waits"))
    database.rows("UPDATE {s}.joins SET run_at = %s WHERE job_id = %s", value, never)
    complete(link, [item.lease for item in claimed])
    assert due(link) == [waiting]
    assert database.rows("SELECT outcome FROM {s}.joins WHERE job_id = %s", never) == [("started",)]
