"""Create and drop databases on a server; psycopg is loaded only when this is asked for."""

from importlib.resources import files
from urllib.parse import quote, urlsplit, urlunsplit

CONNECT_TIMEOUT = 10  # seconds


def url_of(server: str, name: str) -> str:
    """Return the URL of database `name` on the server that `server` points to."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{quote(name, safe='')}"))


def plain(url: str) -> str:
    """Return the URL as libpq reads it: without SQLAlchemy's driver name (`postgresql+psycopg://`)."""
    scheme, rest = url.split("://", 1)
    return f"{scheme.partition('+')[0]}://{rest}"


def create(server: str, name: str) -> None:
    """Create an empty database, connected to the database that `server` names."""
    _execute(server, "create_database.sql", name)


def drop(server: str, name: str) -> None:
    """Drop a database if it exists, ending its connections."""
    _execute(server, "drop_database.sql", name)


def _execute(server: str, file: str, name: str) -> None:
    import psycopg  # noqa: PLC0415 - finding a server must stay light
    from psycopg import sql  # noqa: PLC0415

    statement = sql.SQL(files("outbox.servers").joinpath(file).read_text())
    with psycopg.connect(plain(server), autocommit=True, connect_timeout=CONNECT_TIMEOUT) as connection:
        connection.execute(statement.format(name=sql.Identifier(name)))


def accepts(server: str, timeout: float) -> bool:
    """Tell whether the server lets a client in within `timeout` seconds."""
    import psycopg  # noqa: PLC0415

    try:
        psycopg.connect(plain(server), connect_timeout=max(2, int(timeout))).close()
    except psycopg.OperationalError:
        return False
    return True
