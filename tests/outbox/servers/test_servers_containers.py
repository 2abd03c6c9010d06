"""Containers, against a stand-in for the Docker engine: ports, retries, and what is passed on."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from outbox.servers import NoServer, StartFailed, containers


class Engine:
    """Remembers every container and what was done to it; `errors` are raised by the next starts."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.started: list[Any] = []
        self.done: list[str] = []
        self.exit_code = 0


class Wrapped:
    """The Docker client's own container object."""

    status = "running"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def reload(self) -> None:
        """Refresh nothing."""

    def exec_run(self, argv: list[str], **_: Any) -> SimpleNamespace:
        """Answer with the command itself."""
        output = (" ".join(argv).encode(), b"no such thing")
        return SimpleNamespace(exit_code=self._engine.exit_code, output=output)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda **_: self._engine.done.append(name)


class DockerContainer:
    """Testcontainers' container, as far as it is used."""

    engine: Engine

    def __init__(self, image: str) -> None:
        self.image, self.command = image, None
        self.env: dict[str, str] = {}

    def with_bind_ports(self, inner: int, outer: int) -> None:
        """Remember the ports."""
        self.inner, self.outer = inner, outer

    def with_env(self, name: str, value: str) -> None:
        """Remember a variable."""
        self.env[name] = value

    def with_command(self, command: list[str]) -> None:
        """Remember the command."""
        self.command = command

    def start(self) -> None:
        """Start, or fail as the engine was told to."""
        self.engine.started.append(self)
        if self.engine.errors:
            raise self.engine.errors.pop(0)

    def stop(self) -> None:
        """Remove it."""
        self.engine.done.append("remove")

    def get_container_host_ip(self) -> str:
        """Name the engine's host."""
        return "docker.example"

    def get_exposed_port(self, inner: int) -> int:
        """Map the one port."""
        assert inner == self.inner
        return self.outer

    def get_wrapped_container(self) -> Wrapped:
        """Give the Docker client's object."""
        return Wrapped(self.engine)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Put a stand-in in testcontainers' place, with servers that are ready at once."""
    engine = Engine()
    module = ModuleType("testcontainers.core.container")
    monkeypatch.setattr(module, "DockerContainer", DockerContainer, raising=False)
    monkeypatch.setattr(DockerContainer, "engine", engine, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("outbox.servers.probes.speaks_amqp", lambda *_: True)
    monkeypatch.setattr("outbox.servers.databases.accepts", lambda *_: True)
    return engine


def test_broker_container_is_controlled(engine: Engine) -> None:
    """Each act reaches the container, the port is fixed from outside, and the configuration is passed on."""
    broker = containers.RabbitMQContainer({"consumer_timeout": "60000"})
    (inner,) = engine.started
    password = inner.env["RABBITMQ_DEFAULT_PASS"]
    assert broker.url == f"amqp://outbox:{password}@docker.example:{inner.outer}/"
    assert inner.env["OUTBOX_CONFIG"] == "consumer_timeout = 60000\n"
    for act in (broker.kill, broker.start, broker.stop, broker.pause, broker.resume, broker.close, broker.close):
        act()
    assert engine.done == ["kill", "start", "stop", "pause", "unpause", "remove"]


def test_broker_container_tool(engine: Engine) -> None:
    """Rabbitmqctl runs inside, and its failure tells what it said."""
    broker = containers.RabbitMQContainer()
    assert broker.ctl("list_queues") == "rabbitmqctl --quiet list_queues"
    engine.exit_code = 70
    with pytest.raises(NoServer, match="list_queues ended with 70: no such thing"):
        broker.ctl("list_queues")
    broker.close()


def test_database_container_gets_settings(engine: Engine) -> None:
    """Settings become command-line flags of the server."""
    database = containers.PostgresContainer({"wal_level": "logical"})
    (inner,) = engine.started
    assert inner.command == ["postgres", "--max_connections=200", "--wal_level=logical"]
    assert database.url.endswith(f"@docker.example:{inner.outer}/postgres")
    database.close()


def test_taken_port_is_exchanged(engine: Engine) -> None:
    """A port that was taken in between costs another try, not the server."""
    engine.errors = [RuntimeError("Bind for 0.0.0.0:5 failed: port is already allocated")]
    containers.RabbitMQContainer().close()
    assert len(engine.started) == 2
    assert engine.done == ["remove", "remove"]


def test_other_errors_end_the_try(engine: Engine) -> None:
    """An image that can't be pulled is told at once, and nothing stays behind."""
    engine.errors = [RuntimeError("pull access denied")]
    with pytest.raises(StartFailed, match="pull access denied"):
        containers.PostgresContainer()
    assert engine.done == ["remove"]
