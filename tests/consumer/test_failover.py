"""A server that refuses to write for a while, as one does that a failover has left behind, and still answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg import sql

from support.consuming import Desk, handler
from support.database import Database
from support.invariants import check_invariants
from support.waiting import until


def made_read_only(database: Database, on: bool) -> None:
    """Have every new session refuse to write, and end the consumer's; or have new ones write again and end none."""
    name = sql.Identifier(database.raw.info.dbname)
    if not on:
        database.raw.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
        return
    database.raw.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    database.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'outbox-consumer/%'"
    )


@pytest.mark.parametrize(("where", "pool"), [("effect", "handlers"), ("block", "handlers"), ("apply", "completions")])
def test_every_pool_leaves_a_server_that_does_not_write(desk: Desk, where: str, pool: str) -> None:
    """Sessions that would refuse for ever are given up, so that the same attempt, or the next, finds the writable
    server; what was sent outside was sent once.
    """
    inside, go_on, refused, sent = threading.Event(), threading.Event(), threading.Event(), []

    def writes(session: Any) -> None:
        session.execute(sa.text("INSERT INTO public.effects VALUES (NULL, 1, 'written')"))

    @contextmanager
    def noticing() -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError:
            refused.set()
            raise

    def handle(job: Any, _payload: Any) -> None:
        if job.attempt == 1:
            inside.set()
            assert go_on.wait(60)
        if where == "effect":
            job.effect("charge", {}, send=lambda key, _request: sent.append(key))
        elif where == "block":
            with noticing(), job.transaction() as session:
                writes(session)

    def apply(session: Any, _job: Any, _result: Any) -> None:
        if where == "apply":
            with noticing():
                writes(session)

    desk.start(handler(handle, apply, lease=20), concurrency=1, heartbeat_s=0.3)
    [job_id] = desk.submit("a")
    assert inside.wait(30)
    made_read_only(desk.database, on=True)
    go_on.set()
    sessions = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
    # A session that was refused and given up at once may be gone before anybody sees it.
    until(lambda: refused.is_set() or desk.database.count(sessions, f"outbox-consumer/{pool}"))
    made_read_only(desk.database, on=False)
    desk.done(1)
    assert len(sent) == (where == "effect")
    assert desk.database.count("SELECT 1 FROM public.effects") == (where != "effect")
    assert desk.outcomes(job_id)[-1] == "succeeded"
    assert check_invariants(desk.database) == []
