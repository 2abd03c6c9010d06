"""What a remote service has really done: one line of JSON for each deed, on disk before anybody is answered."""

import json
import os
import threading
from pathlib import Path
from typing import Any


class Ledger:
    """An append-only file, read again at the next start. Safe between threads; for one process."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._deeds: list[dict[str, Any]] = []
        if path.exists():
            # A line that a killed process left half-written was never answered for.
            whole = path.read_bytes().split(b"\n")[:-1]
            self._deeds = [json.loads(line) for line in whole]
            path.write_bytes(b"".join(line + b"\n" for line in whole))
        self._file = path.open("ab", buffering=0)

    def add(self, deed: dict[str, Any]) -> dict[str, Any]:
        """Record a deed and return it with its number, from 1."""
        with self._lock:
            numbered = {"number": len(self._deeds) + 1, **deed}
            self._file.write(json.dumps(numbered).encode() + b"\n")
            os.fsync(self._file.fileno())
            self._deeds.append(numbered)
        return numbered

    def all(self) -> list[dict[str, Any]]:
        """Return every deed, oldest first."""
        with self._lock:
            return list(self._deeds)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
