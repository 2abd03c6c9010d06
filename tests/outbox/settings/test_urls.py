"""Addresses as people write them: every form is read exactly, and no error repeats a piece of one."""

from __future__ import annotations

import os
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from outbox.errors import SettingsError
from outbox.settings.urls import amqp_parameters, database_conninfo, sqlalchemy_engine

NASTY = "p@ss%/:#?[x]'\" é"
NASTY_PASSWORDS = [
    NASTY,
    "%(here)s",
    "a@b@c",
    "/",
    "?",
    "#",
    "@",
    ":",
    "a/b?c=d@e",
    "100%",
    "p@ss/w?rd@x",
    "[::1]",
    "a b",
]
ADDED = {
    "connect_timeout",
    "client_encoding",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "application_name",
}


def address(url: str) -> dict[str, str]:
    """Return the keywords that the URL itself gives."""
    return {key: value for key, value in database_conninfo(url, environ={}).items() if key not in ADDED}


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg", "POSTGRESQL"])
def test_every_scheme_is_read_alike(scheme: str) -> None:
    """SQLAlchemy's driver suffix and the short scheme make no difference."""
    expected = {"user": "u", "password": "p", "host": "h", "port": "5433", "dbname": "db"}
    assert address(f"{scheme}://u:p@h:5433/db") == expected


@pytest.mark.parametrize("password", NASTY_PASSWORDS)
@pytest.mark.parametrize("encode", [str, lambda text: quote(text, safe="")], ids=["raw", "encoded"])
def test_passwords_are_read_raw_and_encoded(password: str, encode: object) -> None:
    """Special characters in a password work as they are and percent-encoded, for both servers."""
    assert callable(encode)
    written = encode(password)
    assert address(f"postgresql://u:{written}@h:5432/db?sslmode=disable")["password"] == password
    broker = amqp_parameters(f"amqp://u:{written}@h/vhost?heartbeat=5")
    assert (broker.username, broker.password, broker.host, broker.vhost) == ("u", password, "h", "vhost")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_any_encoded_password_comes_back(password: str) -> None:
    """Whatever is percent-encoded is read back exactly, without touching its neighbours."""
    written = quote(password, safe="")
    assert address(f"postgresql://u:{written}@h/db").get("password", "") == password
    assert amqp_parameters(f"amqp://u:{written}@h/v").password == password


@given(st.text(st.sampled_from("ab1@:/?#[]%&='\" é"), max_size=12))
def test_any_raw_password_is_read_or_documented_as_ambiguous(password: str) -> None:
    """A raw password survives, unless it holds an encoded byte or itself reads as the end of an address."""
    assume(not any(f"%{a}{b}" in password for a in "ab1" for b in "ab1"))
    assert address(f"postgresql://u:{password}@h/db").get("password", "") == password


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql:///db?host=/run/pg", {"host": "/run/pg", "dbname": "db"}),
        ("postgresql://u:p@/db?host=/run/pg&port=5433", {"host": "/run/pg", "port": "5433"}),
        ("postgresql://u@%2Frun%2Fpg/db", {"host": "/run/pg", "user": "u"}),
        ("postgresql://u:p@h1:5432,h2/db?target_session_attrs=read-write", {"host": "h1,h2", "port": "5432,"}),
        ("postgresql:///db?host=a:1&host=b:2", {"host": "a,b", "port": "1,2"}),
        ("postgresql://u:p@[::1]:5433/db", {"host": "::1", "port": "5433"}),
        ("postgresql://u:p@h/db?application_name=me@home&sslmode=require", {"password": "p", "host": "h"}),
        ("postgresql://h/db?user=u&password=p@ss/w", {"user": "u", "password": "p@ss/w"}),
        ("postgresql://u:p@h/db?ssl=true", {"sslmode": "require"}),
        ("postgresql://u:p@h/db?options=-c%20search_path%3Dx", {"options": "-c search_path=x"}),
        ("postgresql://u%40corp:p@h/db", {"user": "u@corp"}),
        ("postgresql://u:p@h/d%2Fb", {"dbname": "d/b"}),
        ("  postgresql://u:p@h/db\n", {"dbname": "db"}),
        ("host=h dbname=db password='two words'", {"host": "h", "password": "two words"}),
        ("service=mine", {"service": "mine"}),
    ],
)
def test_forms_of_a_database_address(url: str, expected: dict[str, str]) -> None:
    """Sockets, several hosts, options, encoded parts and libpq's keyword form are understood."""
    found = address(url)
    if "application_name=" in url:
        assert database_conninfo(url, environ={})["application_name"] == "me@home"
    assert expected.items() <= found.items()


def test_waits_are_bounded_unless_the_address_says_otherwise() -> None:
    """Defaults fill what is missing, and never replace what is given."""
    plain = database_conninfo("postgresql://h/db", application_name="outbox-test", environ={})
    assert plain.keys() >= ADDED
    assert plain["application_name"] == "outbox-test"
    given = database_conninfo("postgresql://h/db?connect_timeout=3&keepalives=0&application_name=mine", environ={})
    assert (given["connect_timeout"], given["keepalives"], given["application_name"]) == ("3", "0", "mine")
    by_libpq = database_conninfo("postgresql://h/db", environ={"PGCONNECT_TIMEOUT": "2", "PGAPPNAME": "theirs"})
    assert not {"connect_timeout", "application_name"} & by_libpq.keys()


def test_libpq_variables_stand_in_for_a_missing_url() -> None:
    """Without a URL libpq's own address counts, and with neither the error names the remedy."""
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"):
        assert "host" not in database_conninfo(None, environ={name: "x"})
    with pytest.raises(SettingsError, match=r"OUTBOX_DATABASE_URL is not set.*PGHOST"):
        database_conninfo("", environ={"PGUSER": "u", "PGPASSWORD": "p"})


@pytest.mark.parametrize(
    ("url", "vhost"),
    [
        ("amqp://h", "/"),
        ("amqp://h/", "/"),
        ("amqp://h//", "/"),
        ("amqp://h/%2F", "/"),
        ("amqp://h/%2f", "/"),
        ("amqp://h/a%2Fb", "a/b"),
        ("amqp://h/a/b", "a/b"),
        ("amqp://h/jobs", "jobs"),
        ("amqp://h?heartbeat=5", "/"),
    ],
)
def test_vhosts(url: str, vhost: str) -> None:
    """The path is the vhost; none, a lone slash and the encoded slash all mean the default vhost."""
    assert amqp_parameters(url).vhost == vhost


def test_broker_defaults_and_options() -> None:
    """Missing parts have the broker's defaults, `amqps` switches TLS and the port, options get their types."""
    plain = amqp_parameters("amqp://")
    assert (plain.host, plain.port, plain.username, plain.password, plain.tls) == (
        "localhost",
        5672,
        "guest",
        "guest",
        False,
    )
    secure = amqp_parameters(
        "amqps://u:p@h?heartbeat=0&connection_timeout=7&cacertfile=/ca.pem&certfile=/c.pem&keyfile=/k.pem"
        "&verify=verify_none&server_name_indication=broker"
    )
    assert (secure.port, secure.tls, secure.heartbeat_s, secure.connection_timeout_s) == (5671, True, 0, 7)
    assert (secure.ca_file, secure.cert_file, secure.key_file) == ("/ca.pem", "/c.pem", "/k.pem")
    assert (secure.verify, secure.server_name) == (False, "broker")
    assert amqp_parameters("amqp://u@h").password == ""


@pytest.mark.parametrize(
    "bad",
    [
        "postgresql://u:{s}@h:99999/db",
        "postgresql://u:{s}@h:port/db",
        "postgresql://u:{s}@h/db?sslmod=require",
        "postgresql://u:{s}@h/db?{s}=1",
        "postgresql://u:{s}@h/a/b",
        "postgresql://u:{s}%FF@h/db",
        "postgresql://u:{s}%00@h/db",
        "postgresql://u:p@h/db?sslmode={s}&sslmode=b",
        "mysql://u:{s}@h/db",
        "'postgresql://u:{s}@h/db'",
        "host=h {s}",
        "host=h password='{s}",
        "{s}",
        "postgresql://" + "x" * 9000 + "{s}",
    ],
)
def test_refused_database_addresses_repeat_nothing(bad: str) -> None:
    """An address that can't be read is refused with the variable's name and none of its own text."""
    secret = "hunter2secret"
    with pytest.raises(SettingsError) as caught:
        database_conninfo(bad.replace("{s}", secret), environ={})
    assert "OUTBOX_DATABASE_URL" in str(caught.value)
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        "http://u:{s}@h",
        "amqp://u:{s}@h1,h2/",
        "amqp://u:{s}@h?heartbeat=-1",
        "amqp://u:{s}@h?heartbeat=x",
        "amqp://u:{s}@h?verify={s}",
        "amqp://u:{s}@h?heartbeats=3",
        "amqp://u:{s}@h:70000/",
        "{s}",
        "",
    ],
)
def test_refused_broker_addresses_repeat_nothing(bad: str) -> None:
    """The same for the broker's address."""
    secret = "hunter2secret"
    with pytest.raises(SettingsError) as caught:
        amqp_parameters(bad.replace("{s}", secret))
    assert "OUTBOX_AMQP_URL" in str(caught.value)
    assert secret not in str(caught.value)


def test_a_near_option_is_suggested() -> None:
    """A misspelt option is answered with the known one."""
    with pytest.raises(SettingsError, match="did you mean sslmode"):
        database_conninfo("postgresql://u:p@h/db?sslmod=require", environ={})
    with pytest.raises(SettingsError, match="did you mean heartbeat"):
        amqp_parameters("amqp://h?heartbeats=1")


def test_the_password_reaches_the_driver_as_it_is(database_url: str) -> None:
    """A nasty password comes out of a real connection exactly as it went in, in psycopg and in SQLAlchemy."""
    server = psycopg.conninfo.conninfo_to_dict(database_url)
    host, port = quote(str(server.get("host", "localhost")), safe=""), server.get("port", 5432)
    role = f"nasty_{os.getpid()}_{abs(hash(database_url)) % 10**8}"
    with psycopg.connect(database_url, autocommit=True) as admin:
        literal = psycopg.sql.Literal(NASTY)
        admin.execute(psycopg.sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(psycopg.sql.Identifier(role), literal))
        try:
            url = f"postgresql://{role}:{NASTY}@{host}:{port}/{server['dbname']}"
            with psycopg.connect(**database_conninfo(url)) as connection:  # type: ignore[arg-type]
                assert connection.info.password == NASTY
            engine = sqlalchemy_engine(url, application_name="outbox-urls")
            with engine.connect() as connected:
                assert connected.execute(text("SHOW application_name")).scalar_one() == "outbox-urls"
                assert connected.execute(text("SHOW transaction_isolation")).scalar_one() == "read committed"
            assert NASTY not in repr(engine) + str(engine.url)
            engine.dispose()
        finally:
            admin.execute(psycopg.sql.SQL("DROP ROLE {}").format(psycopg.sql.Identifier(role)))


def test_an_engine_reads_several_hosts_and_hides_parameters(database_url: str) -> None:
    """An address with a dead first host works, and a failed statement doesn't show its parameters."""
    server = psycopg.conninfo.conninfo_to_dict(database_url)
    server |= {"host": f"127.0.0.1,{server.get('host', 'localhost')}", "port": f"1,{server.get('port', 5432)}"}
    engine = sqlalchemy_engine(psycopg.conninfo.make_conninfo(**{key: str(value) for key, value in server.items()}))
    with engine.connect() as connection, pytest.raises(Exception, match="invalid input syntax") as caught:
        connection.execute(text("SELECT CAST(:value AS integer)"), {"value": "canary"})
    assert "hidden" in str(caught.value)
    engine.dispose()


def test_an_engine_leaves_a_server_that_does_not_write(database_url: str) -> None:
    """After a failover a session may still answer, and only refuse to write: then none of the pool's is used again."""
    engine = sqlalchemy_engine(database_url, pool_size=2)
    with engine.connect() as one, engine.connect() as two:
        for connection in (one, two):
            connection.execute(text("SET default_transaction_read_only = on"))
            connection.commit()
    for _ in range(2):
        with engine.connect() as connection:
            if connection.execute(text("SHOW default_transaction_read_only")).scalar_one() == "on":
                with pytest.raises(DBAPIError, match="read-only"):
                    connection.execute(text("CREATE TABLE public.written ()"))
    with engine.begin() as one, engine.begin() as two:
        one.execute(text("CREATE TABLE public.written ()"))
        two.execute(text("CREATE TABLE public.other ()"))
    with engine.connect() as connection, pytest.raises(DBAPIError, match="syntax"):
        connection.execute(text("SELECT FROM FROM"))
    engine.dispose()
