"""Which sessions hold what a waiting job needs: a forgotten transaction in somebody's psql, most likely. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outbox.texts.masking import printable
from outbox.texts.spans import span
from outbox_schemas import Reason

__all__ = ["HELD_S", "RowHolder", "held_by_sessions", "holders_of"]

HELD_S = 2.0
"""Whoever holds a row for less is at work: releases, claims and changes take milliseconds."""


@dataclass(frozen=True, slots=True)
class RowHolder:
    """A session with an open transaction.

    Attributes:
        what: "queue": it holds the limits of the job's queue; "job": the job's own outbox row.
        pid: the server's process.
        application, user: as it has called itself, and as whom it works; empty if not known.
        since: when its transaction began; None where the asking role may not know.
        age_s: seconds since then, likewise.
    """

    what: str
    pid: int
    application: str = ""
    user: str = ""
    since: datetime | None = None
    age_s: float | None = None


def holders_of(rows: Sequence[Any]) -> tuple[RowHolder, ...]:
    """Return what the rows of `row_holders.sql` say."""
    return tuple(
        RowHolder(row.what, row.pid, row.application_name or "", row.usename or "", row.since, row.age_s)
        for row in rows
    )


def held_by_sessions(holders: Sequence[RowHolder], queue: str) -> Iterator[tuple[Reason, str, datetime | None]]:
    """Yield why a job waits for each of these, in words, and since when."""
    for one in holders:
        named = [f"application {printable(one.application)}"] if one.application else []
        named += [f"user {printable(one.user)}"] if one.user else []
        who = f"session {one.pid}" + (f" ({', '.join(named)})" if named else "")
        age = "" if one.age_s is None else f", open for {span(one.age_s)}"
        what = "its row"
        if one.what == "queue":
            what = f"the limits of queue {printable(queue)}, of which nothing is released meanwhile"
        yield Reason.ROW_HELD, f"the end of a transaction{age}: {who} holds {what}", one.since
