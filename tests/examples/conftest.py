"""Fixtures for the worked example: its input, a store, its tables in a fresh database, and real HTTP."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from statements.accounts import Accounts
from statements.api import create_app
from statements.database import open_engine
from statements.models import create_tables
from statements.store import FolderStore

Serve = Callable[[FastAPI], AbstractContextManager[httpx.Client]]


class _Server(uvicorn.Server):
    """Tells when it is ready, so that nobody has to poll."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def _serve(app: FastAPI) -> Iterator[httpx.Client]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = _Server(uvicorn.Config(app, log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            assert server.ready.wait(20), "the service did not start"
            with httpx.Client(base_url=url, timeout=20, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the service did not stop"


@pytest.fixture(scope="session")
def serve() -> Serve:
    """Return what serves an application on a free port and yields a client of it."""
    return _serve


@pytest.fixture(scope="session")
def accounts() -> Accounts:
    """Return the shipped input."""
    return Accounts.load()


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """Return an empty store."""
    return FolderStore(tmp_path / "store")


@pytest.fixture
def statements_engine(database_url: str) -> Iterator[Engine]:
    """Return an engine on a fresh database that holds both schemas."""
    engine = open_engine(database_url)
    create_tables(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def session(statements_engine: Engine) -> Iterator[Session]:
    """Return a session whose transactions the test ends itself."""
    with Session(statements_engine) as session:
        yield session


@pytest.fixture
def client(statements_engine: Engine, database_url: str, accounts: Accounts, serve: Serve) -> Iterator[httpx.Client]:
    """Return a client of the running application."""
    with serve(create_app(database_url, accounts)) as client:
        yield client
