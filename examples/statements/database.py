"""The service's engine."""

import os

from sqlalchemy import Engine, create_engine, make_url


def open_engine(database_url: str, *, pool_size: int = 10) -> Engine:
    """Return an engine on psycopg 3; a URL without a driver would mean another one in older SQLAlchemy."""
    url = make_url(database_url)
    if url.drivername in {"postgresql", "postgres"}:
        url = url.set(drivername="postgresql+psycopg")
    # The pool may not outgrow the request threads, and a dead connection is found before a request meets it.
    return create_engine(url, pool_size=pool_size, max_overflow=0, pool_timeout=10, pool_pre_ping=True)


def url_from_environment() -> str:
    """Return OUTBOX_DATABASE_URL.

    Raises SystemExit with one clear line when it is not set.
    """
    url = os.environ.get("OUTBOX_DATABASE_URL")
    if not url:
        raise SystemExit("set OUTBOX_DATABASE_URL, for example postgresql://postgres@localhost/app")
    return url
