"""What every test may use: a PostgreSQL and a RabbitMQ per run, a fresh migrated database and names per test."""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import settings
from sqlalchemy import Engine

from outbox.servers import NoServer
from outbox.texts import masking
from support.database import Database, cloned
from support.log_contract import Watch
from support.servers import RemoteServers, RunServers, ServerDesk, Template

_SERVERS = pytest.StashKey[RunServers | RemoteServers]()
_DESK = pytest.StashKey[ServerDesk]()
_KEPT_VARIABLES = frozenset({"OUTBOX_DATABASE_URL", "OUTBOX_AMQP_URL"})
_NEEDS = {"postgres_server": "template", "rabbitmq_server": "rabbitmq"}

# Four workers and some hundred processes load the same modules: where a machine keeps Python from writing what it has
# compiled, each would compile all of them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test fails for the machine being slow or for an unlucky seed, and a failure prints how to repeat it.
settings.register_profile("outbox", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile("outbox")


def pytest_configure(config: pytest.Config) -> None:
    """Become the owner of the run's servers, or a client of the owner."""
    # A run that was started in the background inherits "ignore Ctrl-C", and so would every program that it tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in os.environ if name.startswith("OUTBOX_") and name not in _KEPT_VARIABLES]:
        del os.environ[name]
    os.environ["OUTBOX_LOG_FORMAT"] = "text"  # nobody sits before the processes that tests start
    config.addinivalue_line("markers", "soak: takes minutes; runs only by `-m soak`")
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is None:
        config.stash[_SERVERS] = RunServers()
    else:
        config.stash[_SERVERS] = RemoteServers(workerinput["server_desk"], workerinput["server_key"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless it was asked for."""
    if "soak" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a new worker where the run's owner answers."""
    config: pytest.Config = node.config
    if _DESK not in config.stash:
        servers = config.stash[_SERVERS]
        assert isinstance(servers, RunServers)
        config.stash[_DESK] = ServerDesk(servers)
    node.workerinput["server_desk"] = config.stash[_DESK].address
    node.workerinput["server_key"] = config.stash[_DESK].key


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what this run has started."""
    if _DESK in config.stash:
        config.stash[_DESK].close()
    if _SERVERS in config.stash:
        config.stash[_SERVERS].close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Have the servers that collected tests need started side by side, outside any test's time limit."""
    if session.config.option.collectonly:
        return None
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    servers = session.config.stash[_SERVERS]
    try:
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(servers.get, sorted(_NEEDS[name] for name in fixtures & _NEEDS.keys())))
    except NoServer as error:
        message = f"The tests can't run: {error}"
        if isinstance(servers, RunServers):
            pytest.exit(message, returncode=3)
        session.shouldstop = message  # the controller is told at this worker's end, and ends the run
        return True
    return None


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> str:
    """Return the URL of the run's PostgreSQL. Never stop it; make and drop databases of your own."""
    url: str = request.config.stash[_SERVERS].get("postgres")
    return url


@pytest.fixture(scope="session")
def rabbitmq_server(request: pytest.FixtureRequest) -> str:
    """Return the URL of the run's RabbitMQ. Never stop it; start every name with the fixture `prefix`."""
    url: str = request.config.stash[_SERVERS].get("rabbitmq")
    return url


@pytest.fixture(scope="session")
def template(request: pytest.FixtureRequest, postgres_server: str) -> Template:
    """Return the run's migrated database, which is only cloned."""
    found: Template = request.config.stash[_SERVERS].get("template")
    return found


@pytest.fixture(scope="session")
def log_watch() -> Iterator[Watch]:
    """Yield what looks at each record that we log in this process."""
    watch, ours = Watch(), logging.getLogger("outbox")
    ours.addHandler(watch)
    yield watch
    ours.removeHandler(watch)


@pytest.fixture(autouse=True)
def _events_of_the_table(log_watch: Watch) -> Iterator[None]:
    """Have each test fail that logs what is not in the table of events."""
    log_watch.breaches.clear()
    yield
    assert not log_watch.breaches


@pytest.fixture
def database(template: Template) -> Iterator[Database]:
    """Yield a fresh migrated database of this test's own."""
    with cloned(template) as database:
        yield database


@pytest.fixture(scope="session")
def shared_database(template: Template) -> Iterator[Database]:
    """Yield a migrated database for tests that commit nothing: each rolls back what it does."""
    with cloned(template) as database:
        yield database


@pytest.fixture
def database_url(database: Database) -> str:
    """Return the URL of this test's own database."""
    return database.url


@pytest.fixture
def engine(database: Database) -> Engine:
    """Return an engine on this test's own database."""
    return database.engine()


@pytest.fixture
def amqp_url(rabbitmq_server: str) -> str:
    """Return the URL of the run's RabbitMQ."""
    return rabbitmq_server


@pytest.fixture
def prefix() -> str:
    """Return what this test's exchanges and queues must start with."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Have no secret be known for masking before the test, and none after it."""
    masking.forget_all()
    yield
    masking.forget_all()
