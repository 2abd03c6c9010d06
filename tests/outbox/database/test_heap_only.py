"""What moves leave behind: heap-only updates, and plans that were kept from small tables and fit large ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outbox import enqueue_many
from outbox.leases.ending import complete
from outbox.leases.leasing import heartbeat
from outbox.migrations import upgrade_database
from outbox.servers import postgres
from support.database import Database, cloned
from support.jobs import notes, release_all, submit, take
from support.servers import SCHEMA, Template
from support.waiting import until

LIVES = 1_000


@pytest.fixture(scope="module")
def quiet_template() -> Iterator[Template]:
    """Yield a template on a server of this module's own: transactions elsewhere hold back a cluster's pruning."""
    with postgres(private=True, settings={"fsync": "off", "autovacuum": "off", "full_page_writes": "off"}) as server:
        upgrade_database(server.create_database("quiet"), SCHEMA)
        yield Template(server.url, "quiet")


@pytest.fixture
def quiet(quiet_template: Template) -> Iterator[Database]:
    """Yield a database on the quiet server."""
    with cloned(quiet_template) as database:
        yield database


def counters(database: Database, table: str) -> tuple[int, int, int]:
    """Return the table's updates, heap-only updates and deletes so far."""
    query = "SELECT n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables WHERE schemaname = %s AND relname = %s"
    row: tuple[int, int, int] = database.rows(query, database.schema, table)[0]
    return row


@pytest.mark.parametrize("batch", [10, 300])
def test_both_updates_of_a_job_are_heap_only(quiet: Database, batch: int) -> None:
    """Over a thousand lives without vacuum, in small and large batches, no update of `jobs` touches an index."""
    quiet.rows("ALTER TABLE {s}.jobs SET (autovacuum_enabled = off)")
    link = quiet.link()
    submit(quiet, LIVES)
    done = 0
    while done < LIVES:
        hints = release_all(link, batch=batch)
        done += len(complete(link, [item.lease for item in take(link, [hint.job_id for hint in hints])]))
    link.close()
    until(lambda: counters(quiet, "jobs")[0] == 2 * LIVES)
    assert counters(quiet, "jobs") == (2 * LIVES, 2 * LIVES, 0)


@pytest.mark.parametrize("markers", ["", "\N{BULLET}" * 200], ids=["plain", "long markers"])
@pytest.mark.parametrize("leases", [8, 400])
def test_heartbeats_are_heap_only(quiet: Database, leases: int, markers: str) -> None:
    """Beats change no indexed column and find room on their page, so that long jobs cost the indexes nothing; a marker
    may take its row to a page with more room once.
    """
    quiet.rows("ALTER TABLE {s}.outbox SET (autovacuum_enabled = off)")
    link = quiet.link()
    ids = submit(quiet, leases)
    release_all(link)
    held = [item.lease for item in take(link, ids)]
    link.close()
    until(lambda: counters(quiet, "outbox")[0] == 2 * leases)
    before = counters(quiet, "outbox")[1]
    for number in range(20):
        said = [f"{number}{markers}" if markers else None] * leases
        assert all(beat.extended for beat in heartbeat(link, held, said))
    link.close()
    until(lambda: counters(quiet, "outbox")[0] == 22 * leases)
    moved = leases if markers else 0
    assert counters(quiet, "outbox")[1] - before >= 0.99 * 20 * leases - moved


def read_in_sequence(database: Database) -> int:
    """Return how many rows of the two tables were read by sequential scans so far, as far as sessions have told."""
    tables = "WHERE schemaname = %s AND relname IN ('jobs', 'outbox')"
    query = f"SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables {tables}"
    count: int = database.rows(query, database.schema)[0][0]
    return count


def test_a_plan_kept_from_small_tables_reads_no_whole_table(quiet: Database) -> None:
    """Statements that were prepared over a handful of jobs still go by indexes when thousands stand in the tables."""
    link = quiet.link()
    for _ in range(12):
        submit(quiet, 3)
        quiet.rows("ANALYZE {s}.outbox")
        quiet.rows("ANALYZE {s}.jobs")
        complete(link, [item.lease for item in take(link, [hint.job_id for hint in release_all(link)])])
    submit(quiet, LIVES)
    before = read_in_sequence(quiet)
    for _ in range(5):
        hints = release_all(link, batch=50)
        complete(link, [item.lease for item in take(link, [hint.job_id for hint in hints])])
    link.close()
    until(lambda: counters(quiet, "outbox")[2] == 12 * 3 + 5 * 50)
    assert read_in_sequence(quiet) - before < LIVES


def test_a_submitter_finds_taken_keys_by_the_index_whatever_was_planned_before(quiet: Database) -> None:
    """A session that met its first taken keys in a small table doesn't walk through the large one later."""
    engine = quiet.engine()
    known = notes(3, "known")
    with engine.connect() as connection:

        def submit_again(times: int) -> None:
            for _ in range(times):
                assert len(enqueue_many(connection, known, schema=quiet.schema)) == 3
                connection.commit()

        submit_again(1)
        quiet.rows("ANALYZE {s}.jobs")
        submit_again(12)
        submit(quiet, LIVES)
        before = read_in_sequence(quiet)
        submit_again(5)
    engine.dispose()  # a session tells what it has read when it ends
    until(lambda: quiet.count("SELECT 1 FROM pg_stat_activity WHERE datname = current_database()") <= 1)
    assert read_in_sequence(quiet) - before < LIVES


# Bytes of the write-ahead log for each move of a job that nobody limits: its row versions and their index entries. An
# entry more is seventy bytes and more.
LOGGED = {"submit": 990, "release": 370, "claim": 580, "complete": 570}


def test_a_job_without_limits_writes_nothing_for_them(quiet: Database) -> None:
    """Each move of its life writes its rows and the indexes that it is found by, and none that is there for limits."""
    for table in ("jobs", "outbox", "attempts"):
        quiet.rows(f"ALTER TABLE {{s}}.{table} SET (autovacuum_enabled = off)")
    link, places = quiet.link(), []

    def mark() -> None:
        places.append(int(quiet.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")))

    for _ in range(3):  # the last one counts: pages and indexes have been made by then
        places.clear()
        mark()
        submit(quiet, LIVES)
        mark()
        hints = release_all(link)
        mark()
        taken = take(link, [hint.job_id for hint in hints])
        mark()
        assert len(complete(link, [item.lease for item in taken])) == LIVES
        mark()
    link.close()
    written = {move: (places[at + 1] - places[at]) / LIVES for at, move in enumerate(LOGGED)}
    assert {move: most for move, most in LOGGED.items() if written[move] > most} == {}, written
