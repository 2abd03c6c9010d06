"""The ground of the matrix's quick cells: the servers of this test run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from crash.processes import start_provider
from outbox.migrations import upgrade_database
from outbox.servers import Postgres
from outbox.servers.instance import Instance
from support.servers import SCHEMA, Template


class SharedGround:
    """What cells may use without crashing it."""

    def __init__(self, instance: Instance, template: Template, amqp_url: str) -> None:
        self._provider = ""
        self.instance = instance
        self._template = template
        self._amqp_url = amqp_url

    def template(self) -> Template:
        """Return a migrated database."""
        return self._template

    def amqp_url(self) -> str:
        """Return the broker."""
        return self._amqp_url

    def provider_url(self) -> str:
        """Return the provider's address; it is started when first asked for."""
        self._provider = self._provider or start_provider(self.instance)
        return self._provider

    def victim(self, kind: str) -> Any:
        """Refuse: no server of the test run is crashed."""
        raise AssertionError(f"no {kind} is crashed in the usual test run; mark the cell as not quick")


@pytest.fixture(scope="session")
def ground(postgres_server: str, rabbitmq_server: str) -> Iterator[SharedGround]:
    """Yield the servers of this run, a migrated database and a place for processes."""
    name = f"crash_template_{uuid.uuid4().hex[:12]}"
    server = Postgres(postgres_server, "test run")
    upgrade_database(server.create_database(name), SCHEMA)
    instance = Instance("crash", None)
    try:
        yield SharedGround(instance, Template(postgres_server, name), rabbitmq_server)
    finally:
        instance.close()
        server.drop_database(name)
