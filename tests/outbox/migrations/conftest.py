"""Databases of their own for the migration tests, and a package with one migration more."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url

from outbox.migrations import revisions
from outbox.servers import databases

NEWEST = revisions.head()
NEXT = f"{max(int(one.revision) for one in revisions.script_directory().walk_revisions()) + 1:04}"
"""The revision that `next_migration` adds after the newest of the package."""

_SCRIPT = f'''"""One more, for the tests."""

revision = "{NEXT}"
down_revision = "{NEWEST}"


def upgrade(apply):
    """Hand over the SQL."""
    apply("next.sql")
'''


def engine_for(url: str, driver: str = "psycopg") -> Engine:
    """Return an engine that keeps no connection open."""
    return create_engine(make_url(url).set(drivername=f"postgresql+{driver}"), poolclass=NullPool)


@contextmanager
def scratch(server_url: str) -> Iterator[str]:
    """Yield the URL of a new, empty database, dropped afterwards."""
    name = f"migration_{uuid.uuid4().hex[:12]}"
    databases.create(server_url, name)
    try:
        yield databases.url_of(databases.plain(server_url), name)
    finally:
        databases.drop(server_url, name)


@pytest.fixture
def empty_database(postgres_server: str) -> Iterator[str]:
    """Give the URL of an empty database."""
    with scratch(postgres_server) as url:
        yield url


@pytest.fixture
def engine(empty_database: str) -> Engine:
    """Give an engine on an empty database."""
    return engine_for(empty_database)


@pytest.fixture
def next_migration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Add a revision `NEXT` with the given SQL to a copy of the package's migrations, and return its folder."""

    def add(sql: str) -> Path:
        here = tmp_path / "migrations"
        shutil.copytree(Path(revisions.__file__).parent, here, ignore=shutil.ignore_patterns("__pycache__"))
        (here / "versions" / "next.py").write_text(_SCRIPT)
        (here / "versions" / "next.sql").write_text(sql)
        monkeypatch.setattr(revisions, "HERE", here)
        revisions.script_directory.cache_clear()
        return here

    yield add
    monkeypatch.undo()
    revisions.script_directory.cache_clear()
