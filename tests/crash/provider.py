"""The other side: a provider whose own books, in a file that survives every process, say what it really did."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

__all__ = ["Provider"]

_BOOKS = """
CREATE TABLE done (key TEXT NOT NULL, id TEXT NOT NULL);
CREATE TABLE known (key TEXT PRIMARY KEY, id TEXT NOT NULL);
CREATE TABLE heard (key TEXT NOT NULL);
"""


class Provider:
    """Does what it is asked, in one transaction of its own. Nothing keeps it from doing a thing twice but the keys
    that it knows again, and only for charges.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def open(self) -> None:
        """Begin the books."""
        with self._books() as books:
            books.executescript(_BOOKS)

    def charge(self, key: str) -> str:
        """Charge once per key, and answer the same whenever it is asked again."""
        with self._books() as books:
            books.execute("INSERT INTO heard VALUES (?)", (key,))
            made = books.execute("INSERT OR IGNORE INTO known VALUES (?, ?)", (key, uuid.uuid4().hex))
            answer: str = books.execute("SELECT id FROM known WHERE key = ?", (key,)).fetchone()[0]
            if made.rowcount:
                books.execute("INSERT INTO done VALUES (?, ?)", (key, answer))
            return answer

    def mail(self, key: str) -> str:
        """Send a mail, whether or not it was sent before."""
        answer = uuid.uuid4().hex
        with self._books() as books:
            books.execute("INSERT INTO heard VALUES (?)", (key,))
            books.execute("INSERT INTO done VALUES (?, ?)", (key, answer))
        return answer

    def find(self, key: str) -> str | None:
        """Return the id of what was done under a key, or None."""
        with self._books() as books:
            found = books.execute("SELECT id FROM done WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def done(self) -> list[str]:
        """Return the key of each thing that was done."""
        with self._books() as books:
            return [key for (key,) in books.execute("SELECT key FROM done")]

    def heard(self) -> int:
        """Return how many requests came."""
        with self._books() as books:
            return int(books.execute("SELECT count(*) FROM heard").fetchone()[0])

    @contextmanager
    def _books(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, timeout=60)) as books, books:
            books.execute("PRAGMA synchronous = OFF")  # processes die here, no machine does
            yield books
