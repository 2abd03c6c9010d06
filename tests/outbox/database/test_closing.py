"""What a failed statement of ours shows of the job, on an engine that shows its parameters."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ClassVar

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from outbox import fan_in, once
from outbox.database.closing import close_error
from outbox_schemas import Payload, Sensitive
from support.database import Database
from support.targets import WAYS, Caller, run_with

SECRET = "tok-supersecret"
OTHER = "pin-verysecret"


class Secretive(Payload):
    """Holds what nobody may read."""

    kind: ClassVar[str] = "test.secretive"

    token: Annotated[str, Sensitive] = SECRET
    pin: SecretStr = SecretStr(OTHER)

    def logical_key(self) -> str:
        """Return a key."""
        return "one"


async def _missing(database: Database, caller: Caller) -> None:
    await caller.enqueue(Secretive(), schema="nowhere")


async def _refused_row(database: Database, caller: Caller) -> None:
    """Have PostgreSQL quote the whole row as its detail, for a constraint of somebody's."""
    database.rows("ALTER TABLE {s}.jobs ADD CHECK (kind <> 'test.secretive')")
    await caller.enqueue(Secretive(), schema=database.schema)


async def _quoting(database: Database, caller: Caller) -> None:
    """Have the server quote parameters in its context."""
    name = database.value("SELECT current_database()")
    database.rows(f'ALTER DATABASE "{name}" SET log_parameter_max_length_on_error = -1')
    await _refused_row(database, caller)


async def _cut_off(database: Database, caller: Caller) -> None:
    found = await caller.execute(sa.text("SELECT pg_backend_pid()"))
    database.rows("SELECT pg_terminate_backend(%s, 10000)", found.scalar_one())
    await caller.enqueue(Secretive(), schema=database.schema)


Fault = Callable[[Database, Caller], Awaitable[None]]


@pytest.mark.parametrize("fault", [_missing, _refused_row, _quoting, _cut_off])
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_submission_that_fails_shows_no_payload(database: Database, way: tuple[str, str], fault: Fault) -> None:
    """Neither the error nor its traceback holds a value of the payload, whatever the driver and the fault."""

    async def body(caller: Caller) -> None:
        await fault(database, caller)

    with pytest.raises(sa.exc.DBAPIError) as caught:
        run_with(database, way, body)
    _check_silent(caught.value)
    assert caught.value.orig is not None
    assert str(caught.value.orig)


def test_missing_tables_keep_their_remedy(database: Database) -> None:
    """The note that says what to do stands in the closed error."""

    async def body(caller: Caller) -> None:
        await _missing(database, caller)

    with pytest.raises(sa.exc.ProgrammingError, match="does not exist") as caught:
        run_with(database, ("Session", "psycopg"), body)
    assert any("outbox db upgrade" in note for note in caught.value.__notes__)


def test_other_statements_are_closed_too(database: Database) -> None:
    """What `once` keeps and what `fan_in` writes is no more to be seen than what `enqueue` writes."""
    database.rows("ALTER TABLE {s}.inbox ADD CHECK (result IS NULL)")
    database.rows("ALTER TABLE {s}.jobs ADD CHECK (kind <> 'test.secretive')")
    engine = database.keep(sa.create_engine(database.driver_url("psycopg")))
    with engine.connect() as connection:
        claim = once(connection, "a key", {}, schema=database.schema)
        with pytest.raises(sa.exc.IntegrityError) as kept:
            claim.store({"token": SECRET})
    _check_silent(kept.value)
    with engine.connect() as connection, pytest.raises(sa.exc.IntegrityError) as joined:
        fan_in(connection, [], Secretive(), schema=database.schema)
    _check_silent(joined.value)


def test_what_the_caller_was_dealing_with_stays() -> None:
    """Another error of the user's, during which ours came about, keeps its text."""
    driver = ValueError("first\nCONTEXT: second")
    mine = RuntimeError("one\ntwo")
    driver.__context__ = mine
    error = sa.exc.DBAPIError("SELECT 1", {"jobs": SECRET}, driver)
    close_error(error)
    assert str(driver) == "first"
    assert str(mine) == "one\ntwo"
    assert SECRET not in str(error)


def _check_silent(error: BaseException) -> Any:
    told = str(error) + repr(error) + "".join(traceback.format_exception(error))
    assert SECRET not in told
    assert OTHER not in told
