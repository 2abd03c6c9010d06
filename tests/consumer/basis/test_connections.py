"""The database connections of a consumer, apart from what uses them."""

from __future__ import annotations

import logging

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from outbox.settings import Settings
from outbox_consumer.basis.connections import Connections
from support.database import Database


def test_the_pools_tell_no_log_of_their_doings(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """The log holds the events of the table; what a pool opens, lends and disposes of is none."""
    connections = Connections(Settings(database_url=SecretStr(database.url)), slots=1)
    with caplog.at_level(logging.DEBUG):
        for engine in (connections.for_handlers, connections.for_completions):
            with engine.connect() as connection:
                connection.execute(sa.text("SELECT 1"))
                connection.invalidate()
        connections.close()
    assert caplog.messages == []
