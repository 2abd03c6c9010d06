"""`outbox jobs tail`: what happens to jobs, as it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import click
import psycopg

from outbox.cli.ages import Age
from outbox.cli.amounts import Amount, Whole
from outbox.cli.output import STATEMENT_TIMEOUT_S, instant, is_json, json_option, open_link, pass_settings, to_json_line
from outbox.database.trouble import reason_of
from outbox.processes.backoff import Backoff
from outbox.processes.connection_trouble import is_transient
from outbox.reading.following import Change, Follower, What
from outbox.settings import Settings
from outbox.texts.masking import masked_line
from outbox_schemas import JobView

__all__ = ["tail_command"]

_LINE = 300
_LONGEST_PAUSE_S = 10.0


@click.command("tail")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--kind", metavar="NAME", help="Only jobs of this kind.")
@click.option("--tenant", metavar="NAME", help="Only jobs of this tenant.")
@click.option("--correlation", "correlation_id", metavar="ID", help="Only jobs with this correlation id.")
@click.option("--subject", metavar="TEXT", help="Only jobs that are about this.")
@click.option("--only", type=click.Choice([what.value for what in What]), multiple=True, help="Only this; repeatable.")
@click.option("--since", type=Age(), default="0s", metavar="SPAN", help="Begin so long ago: 90s, 15m, 2h.")
@click.option(
    "--every", type=Amount(0.2, 60), default=1.0, show_default=True, metavar="SECONDS", help="Time of a look."
)
@click.option("--count", type=Whole(1, 1_000_000), metavar="N", help="End after so many lines.")
@json_option
@pass_settings
def tail_command(
    settings: Settings,
    /,
    *,
    only: tuple[str, ...],
    since: timedelta,
    every: float,
    count: int | None,
    **filters: str | None,
) -> None:
    """Follow what happens to jobs until Ctrl-C: submissions, starts, ends, further tries, redrives.

    A look every second. Failures are all told. What is submitted, started and ended between two looks, or among very
    many others, may be missed: nothing in the tables is kept for this. With --json each line is an object.
    """
    chosen = {name: value for name, value in filters.items() if value is not None}
    follower = Follower(lambda job: all(getattr(job, name) == value for name, value in chosen.items()), since)
    told = 0
    for change in _followed(settings, follower, every):
        if only and change.what not in only:
            continue
        click.echo(_json(change) if is_json() else _line(change))
        told += 1
        if count is not None and told >= count:
            return


def _followed(settings: Settings, follower: Follower, every_s: float) -> Iterator[Change]:
    """Yield changes for ever. A database that goes away is waited for, and told of on stderr; one that can't be reached
    at the start is an error.
    """
    backoff, begun, let_go = Backoff(0.5, _LONGEST_PAUSE_S), False, 0
    with open_link(settings, application_name="outbox-cli/tail") as link:
        while True:
            found: list[Change] = []
            try:
                with link.transaction():
                    link.run("limit_statements", milliseconds=STATEMENT_TIMEOUT_S * 1000)
                    found = follower.look(link)
            except psycopg.Error as error:
                if not (begun and is_transient(error)):
                    raise
                yield from found  # the look was over; only its commit was cut off, and no other look tells this again
                if not backoff.failures:
                    _note(f"the database is away or busy ({reason_of(error)}); waiting for it")
                time.sleep(backoff.next_s())
                continue
            if backoff.failures:
                _note("the database is there again; what happened meanwhile follows as far as it is on record")
                backoff.reset()
            begun = True
            yield from found
            if follower.let_go > let_go:
                let_go = follower.let_go
                _note(f"too many jobs wait to follow each: {let_go} were let go of, until they run or fail")
            time.sleep(every_s)


def _note(text: str) -> None:
    click.echo(masked_line(text, _LINE), err=True)


def _json(change: Change) -> str:
    return to_json_line({"at": change.at, "what": change.what, "job": change.job})


def _line(change: Change) -> str:
    job = change.job
    head = f"{instant(change.at)}  {change.what.value:<11}  {job.id}"
    return f"{head}  {masked_line('  '.join(_facts(change.what, job)), _LINE)}"


def _facts(what: What, job: JobView) -> Iterator[str]:
    yield f"{job.kind} {job.logical_key}"
    yield f"queue={job.queue} tenant={job.tenant}"
    if what is not What.SUBMITTED:
        yield f"attempt={job.attempt_count}"
    if what is What.STARTED and job.lease_owner is not None:
        yield f"by {job.lease_owner}"
    if what in {What.FAILED, What.WAITS_AGAIN} and job.last_error is not None:
        yield f"{job.last_error.code}: {job.last_error.message}"
    if what is What.WAITS_AGAIN and job.run_at is not None:
        yield f"until {instant(job.run_at)}"
    if what is What.CANCELLED and job.cancel_requested_by is not None:
        yield f"by {job.cancel_requested_by}: {job.cancel_reason}"
