"""Every read that a person waits for, on a large history: its 95th percentile against the bound."""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from uuid import UUID

import sqlalchemy as sa

from outbox import explain
from outbox.cli.top.reading import read_picture
from outbox.database.link import Link
from outbox.database.statements import statements_for
from outbox.doctor import Limits, examine
from outbox.explaining.explaining import explain_job
from outbox.explaining.history import read_history
from outbox.explaining.timeline import timeline
from outbox.migrations import upgrade_database
from outbox.operating.dead_letters import DeadFilter, count_dead_letters, list_dead_letters, read_dead_letter
from outbox.reading.following import Follower
from outbox.reading.jobs import show_job
from outbox.reading.searching import search_jobs
from outbox.servers import postgres
from outbox.settings.urls import sqlalchemy_engine
from outbox_schemas import JobState
from scale.claims import measure_claims
from scale.filling import fill
from scale.keys import measure_keys
from scale.releases import measure_releases
from scale.telemetry import measure_telemetry

BOUND_S = 0.3
ROUNDS = 40


def main(arguments: list[str]) -> int:
    """Fill a database of its own, measure, and return 1 if a read took too long."""
    parser = argparse.ArgumentParser(description="Read a large history and measure how long that takes.")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="ended jobs to make")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="times that each read is made")
    chosen = parser.parse_args(arguments)
    with postgres(private=True, settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server:
        url = server.create_database("scale")
        upgrade_database(url, "outbox")
        start = time.monotonic()
        fill(url, chosen.jobs)
        print(f"{chosen.jobs} ended jobs made in {time.monotonic() - start:.0f} s", flush=True)
        slow = measure(url, chosen.rounds)
        held = [measure_claims(url), measure_releases(server), measure_keys(server), measure_telemetry(server)]
        return slow if all(held) else 1


def measure(url: str, rounds: int) -> int:
    """Make each read so often, print a line for each, and return 1 if one is too slow."""
    link = Link(url, statements_for("outbox"), name="scale", pooled=True)
    engine = sqlalchemy_engine(url)
    ids = [row.id for row in link.run("find_jobs", low=UUID(int=0), below=UUID(int=(1 << 128) - 1), batch=5000, **_ALL)]
    slow = []
    try:
        for name, read in _reads(link, engine, ids).items():
            took = sorted(_timed(read) for _ in range(rounds))
            p95 = took[min(len(took) - 1, int(len(took) * 0.95))]
            verdict = "" if p95 <= BOUND_S else f"  MISSED: the bound is {BOUND_S * 1000:.0f} ms"
            slow += [name] if verdict else []
            middle = statistics.median(took)
            print(f"{name:<34}{middle * 1000:8.1f} ms median{p95 * 1000:8.1f} ms p95{verdict}", flush=True)
        took_s = _timed(lambda: _well(engine))
        print(f"{'doctor, whole':<34}{took_s:8.1f} s")
    finally:
        link.close()
        engine.dispose()
    return 1 if slow else 0


_ALL = dict.fromkeys(("state", "queue", "kind", "tenant", "subject", "limit_group", "limit_key"))


def _reads(link: Link, engine: sa.Engine, ids: list[UUID]) -> dict[str, Callable[[], object]]:
    def listed(**filters: object) -> Callable[[], object]:
        return lambda: search_jobs(link, **filters)  # type: ignore[arg-type]

    def within(read: Callable[[Link], object]) -> object:
        with link.transaction():
            return read(link)

    def shown() -> None:
        found = show_job(link, random.choice(ids))
        assert found is not None
        explain_job(link, found[0])

    def explained() -> None:
        with engine.connect() as connection:
            explain(connection, random.choice(ids), schema="outbox")

    failed = [letter.job_id for letter in list_dead_letters(link, limit=1000)]
    lists = {f"list --state {state}": listed(state=state) for state in JobState}
    for field in ("queue", "kind", "tenant"):
        values = {"queue": ("mail", "rare", "none"), "kind": ("scale.mail", "scale.rare", "none")}
        for value in values.get(field, ("b", "rare", "none")):
            lists[f"list --{field} {value}"] = listed(**{field: value})
    return {
        "list": listed(),
        **lists,
        "list --state failed --queue rare": listed(state=JobState.FAILED, queue="rare"),
        "list --limit 500": listed(limit=500),
        "show": shown,
        "explain": explained,
        "show --timeline": lambda: timeline(read_history(link, random.choice(ids)).history),
        "tail, its first look": lambda: within(Follower(lambda _job: True).look),
        "top": lambda: within(read_picture),
        "dead list": lambda: list_dead_letters(link),
        "dead list --code, --kind": lambda: list_dead_letters(link, DeadFilter(code="code_300", kind="scale.mail")),
        "dead list --group-by code,kind": lambda: count_dead_letters(link, ("code", "kind")),
        "dead show": lambda: read_dead_letter(link, random.choice(failed)),
    }


def _timed(read: Callable[[], object]) -> float:
    start = time.monotonic()
    read()
    return time.monotonic() - start


def _well(engine: sa.Engine) -> None:
    report = examine(engine, schema="outbox", limits=Limits(old_s=1e6))
    for disorder in report.disorders:
        print(f"WRONG: {disorder.check.code}: {disorder.count}, {disorder.cases[:1]}")
    for code, reason in report.unfinished.items():
        print(f"not looked at: {code}: {reason}")
