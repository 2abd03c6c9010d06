"""Servers that the environment names for the demonstration: read and asked before anything is started."""

import subprocess
import sys
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from sqlalchemy import text

from outbox.errors import SettingsError
from outbox.servers import NoBroker, Postgres
from outbox.settings.urls import database_conninfo
from statements.database import open_engine
from statements.demo.found import check_found, usable

pytestmark = pytest.mark.usefixtures("fresh_registry")


@pytest.mark.parametrize(
    "named",
    [
        {"OUTBOX_DATABASE_URL": "mysql://u:canary@h/d"},
        {"OUTBOX_DATABASE_URL": "nonsense"},
        {"OUTBOX_AMQP_URL": "http://u:canary@h/"},
    ],
)
def test_an_address_that_cant_be_read_is_a_settings_error(named: dict[str, str]) -> None:
    """The variable is named, and no part of the address is shown."""
    with pytest.raises(SettingsError, match=next(iter(named))) as refused:
        check_found(named)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "address", "code", "message"),
    [
        ("OUTBOX_DATABASE_URL", "mysql://u:canary@h/d", 2, "OUTBOX_DATABASE_URL"),
        ("OUTBOX_AMQP_URL", "amqp://u:canary@127.0.0.1:1/", 3, "can't be reached"),
    ],
)
def test_the_command_ends_at_once_in_one_line(variable: str, address: str, code: int, message: str) -> None:
    """`outbox demo` starts nothing on an address that can't be used, and its exit code is the documented one."""
    done = subprocess.run(
        [sys.executable, "-m", "outbox", "demo"],
        env={"PATH": "/usr/bin:/bin", variable: address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert message in done.stderr
    assert "canary" not in done.stderr


def test_a_broker_that_refuses_is_told(rabbitmq_server: str) -> None:
    """A wrong password is no reason to go on without the broker; one that lets us in is fine."""
    parts = urlsplit(rabbitmq_server)
    wrong = parts._replace(netloc=f"nobody:canary@{parts.hostname}:{parts.port or 5672}").geturl()
    with pytest.raises(NoBroker, match="refuses us") as refused:
        check_found({"OUTBOX_AMQP_URL": wrong})
    assert "canary" not in str(refused.value)
    check_found({"OUTBOX_AMQP_URL": rabbitmq_server})
    check_found({})


@pytest.mark.parametrize(
    "address",
    [
        "host=h port=1 dbname=d user=u password='a b'",
        "postgresql+psycopg://u:a/b#c?@h:1/d",
        "postgres://u@h1,h2:2/d?sslmode=disable",
        "postgresql:///d?host=/run/postgresql",
    ],
)
def test_every_form_of_address_becomes_one_that_all_read(address: str) -> None:
    """The plain form means the same to libpq, and SQLAlchemy can read it."""
    plain = usable(Postgres(address, "environment")).url
    assert database_conninfo(plain) == database_conninfo(address)
    open_engine(plain).dispose()


def test_a_database_can_be_made_by_the_plain_form(postgres_server: str) -> None:
    """Whoever writes libpq's keywords gets a database of their own, too."""
    keywords = database_conninfo(postgres_server)
    chosen = {key: keywords[key] for key in ("host", "port", "user", "password", "dbname") if key in keywords}
    server = usable(Postgres(" ".join(f"{key}={value}" for key, value in chosen.items()), "environment"))
    name = f"outbox_demo_test_{uuid4().hex[:12]}"
    url = server.create_database(name)
    try:
        engine = open_engine(url)
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT current_database()")) == name
        engine.dispose()
    finally:
        server.drop_database(name)
