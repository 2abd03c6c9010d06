"""Arrays of ids in the protocol's own form."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from outbox.database.arrays import uuid_array
from outbox.database.link import Link


@pytest.mark.parametrize("ids", [[], [UUID(int=0)], [UUID(int=2**128 - 1), uuid4(), uuid4()]], ids=len)
def test_the_server_reads_what_was_meant(link: Link, ids: list[UUID]) -> None:
    """None, one or several ids arrive as an array of uuids, in their order."""
    connection = link.connection()
    assert connection.execute("SELECT %s", (uuid_array(ids),)).fetchone() == (ids,)
    assert connection.execute("SELECT pg_typeof(%s)::text", (uuid_array(ids),)).fetchone() == ("uuid[]",)
