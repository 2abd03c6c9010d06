"""How a session writes what our statements return. Instants and JSON come as text, and psycopg reads them in one of
PostgreSQL's ways alone: instants where DateStyle is ISO, JSON where the client's encoding is UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import sqlalchemy as sa

__all__ = ["speaking_plainly"]

_AS_IT_IS: AbstractContextManager[None] = nullcontext()


class _Manner(NamedTuple):
    date_style: str
    encoding: str


_PLAIN = _Manner("ISO", "UTF8")


def speaking_plainly(connection: sa.Connection, speak: sa.TextClause) -> AbstractContextManager[None]:
    """Have a session of the user's write what can be read while the block runs, and as before afterwards.

    Costs nothing but a look at what the server has reported where the session does so anyway, as most do. Other drivers
    than psycopg see to it themselves.
    """
    driver: Any = connection.connection.driver_connection
    reported = getattr(getattr(driver, "pgconn", None), "parameter_status", None)
    if reported is None:
        return _AS_IT_IS
    style, encoding = reported(b"DateStyle") or b"ISO", reported(b"client_encoding") or b"UTF8"
    if style.startswith(b"ISO") and encoding == b"UTF8":
        return _AS_IT_IS
    # Outside of a transaction nothing lasts until the next statement but what is set for the session.
    is_local = not driver.autocommit
    return _speaking(connection, speak, _Manner(style.decode(), encoding.decode()), is_local=is_local)


@contextmanager
def _speaking(connection: sa.Connection, speak: sa.TextClause, before: _Manner, *, is_local: bool) -> Iterator[None]:
    def say(manner: _Manner) -> None:
        connection.execute(speak, manner._asdict() | {"is_local": is_local})

    say(_PLAIN)
    try:
        yield
    except sa.exc.DBAPIError:
        if not is_local:  # else the rollback that it needs takes this back, too
            say(before)
        raise
    except BaseException:
        say(before)
        raise
    say(before)
