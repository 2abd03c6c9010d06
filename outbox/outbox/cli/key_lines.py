"""The lines of a concurrency key, as `outbox jobs list --limit-key` shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from outbox.cli.output import instant, table
from outbox.database.link import Link
from outbox.reading.jobs import jobs_by_ids
from outbox.reading.key_lines import KeyLine, KeyPlace, Stands
from outbox.texts.masking import printable
from outbox_schemas import JobView

__all__ = ["line_jobs", "line_lines"]

_HEADERS = ["PLACE", "ID", "STANDS", "BY", "UNTIL", "KIND", "KEY"]
_WORDS = {
    Stands.BLOCKS: "has failed and blocks",
    Stands.RUNNING: "runs",
    Stands.LEASE_EXPIRED: "its lease has expired",
    Stands.HINTED: "its hint is out",
    Stands.NEXT: "is next",
    Stands.WAITS: "waits",
}


def line_jobs(link: Link, lines: Sequence[KeyLine]) -> dict[UUID, JobView]:
    """Return the jobs that stand in lines, by their ids."""
    return {job.id: job for job in jobs_by_ids(link, [one.job_id for line in lines for one in line.jobs])}


def line_lines(lines: Sequence[KeyLine], jobs: Mapping[UUID, JobView]) -> Iterator[str]:
    """Yield each line of the key with its jobs, and an empty line behind it."""
    for line in lines:
        most = "" if line.limit_max is None else f", {line.slots} of {line.limit_max} slots taken"
        yield printable(f"line of {line.limit_key} in {line.limit_group}, tenant {line.tenant}{most}")
        yield from table(_HEADERS, [_row(one, jobs.get(one.job_id)) for one in line.jobs])
        if line.more:
            yield "there are more behind them; --limit shows more"
        yield ""


def _row(one: KeyPlace, job: JobView | None) -> list[object]:
    has_slot = one.lease_expires_at is not None
    return [
        "-" if one.place is None else one.place,
        one.job_id,
        _WORDS[one.stands],
        job.lease_owner if job is not None and has_slot else "-",
        instant(one.lease_expires_at),
        "-" if job is None else job.kind,
        "-" if job is None else job.logical_key,
    ]
