"""An object store behind an interface, and one that is a folder.

Three things are asked of any store: creation only if absent, a recorded checksum, and never other bytes
under one key.
"""

import errno
import hashlib
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol, Self

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_SUFFIX = ".sha256"
_INCOMING = ".incoming"


class ObjectStoreError(Exception):
    """Base of what a store raises on purpose."""


class ObjectConflictError(ObjectStoreError):
    """The key is taken by other bytes."""


class ObjectCorruptError(ObjectStoreError):
    """The bytes are no longer those whose checksum was recorded."""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What is known of an object without reading it.

    `sha256` is None for an incomplete object: its writer died before the checksum was recorded.
    """

    key: str
    size: int
    sha256: str | None


class ObjectStore(Protocol):
    """What the handler needs; a cloud store gives the same with a conditional PUT and a checksum header."""

    def head(self, key: str) -> ObjectHead | None:
        """Return what is recorded under the key, or None when it is absent."""

    def get(self, key: str) -> bytes:
        """Return the bytes, checked against the recorded checksum.

        Raises KeyError when absent or incomplete, ObjectCorruptError when the checksum differs.
        """

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Create the object and return its checksum; the same bytes again are welcome and change nothing.

        Raises ObjectConflictError when the key holds other bytes.
        """


class FolderStore:
    """A folder as an object store, safe between threads and processes of one machine.

    The bytes are written aside, synced, then given their name with a hard link, which fails when the name is
    taken. The checksum follows in the same way as `NAME.sha256`, in the format of sha256sum.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True)

    @classmethod
    def from_environment(cls) -> Self:
        """Open the folder that STATEMENTS_STORE names.

        Raises ValueError when it is not set.
        """
        folder = os.environ.get("STATEMENTS_STORE")
        if not folder:
            raise ValueError("set STATEMENTS_STORE to the folder that holds the documents")
        store = cls(Path(folder))
        store.remove_abandoned(timedelta(hours=1))
        return store

    def head(self, key: str) -> ObjectHead | None:
        """Return what is recorded under the key, or None when it is absent."""
        path = self._path(key)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return None
        return ObjectHead(key, size, _recorded(path))

    def get(self, key: str) -> bytes:
        """Return the bytes, checked against the recorded checksum.

        Raises KeyError when absent or incomplete, ObjectCorruptError when the checksum differs.
        """
        path = self._path(key)
        recorded = _recorded(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise KeyError(key) from error
        if recorded is None:
            raise KeyError(key)
        if _digest(data) != recorded:
            raise ObjectCorruptError(f"{key} does not match its recorded checksum")
        return data

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Create the object and return its checksum; the same bytes again complete what a dead writer left.

        Raises ObjectConflictError when the key holds other bytes, ObjectCorruptError when damaged ones.
        """
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = _digest(data)
        if not self._create(path, data):
            self._require_same(key, path, digest)
        self._create(_checksum_path(path), f"{digest}  {path.name}\n".encode())
        return digest

    def remove_abandoned(self, age: timedelta) -> None:
        """Remove half-written files of dead writers, older than `age`; they never had a key."""
        # File times and this clock belong to one machine; an hour's error only delays the tidying.
        oldest = time.time() - age.total_seconds()
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _path(self, key: str) -> Path:
        segments = key.split("/")
        if len(key) > 1024 or not all(_SEGMENT.fullmatch(segment) for segment in segments):
            raise ValueError(f"{key[:80]!a} is not a key: letters, digits, '._-', parted by single '/'")
        if key.endswith(_SUFFIX):
            raise ValueError(f"a key must not end in {_SUFFIX}")
        return self._root.joinpath(*segments)

    def _create(self, path: Path, data: bytes) -> bool:
        """Give `data` the name `path` in one step; False when the name is taken."""
        with NamedTemporaryFile(dir=self._incoming) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(file.name, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in {errno.EPERM, errno.ENOTSUP}:
                    raise ObjectStoreError(f"{self._root} needs a file system with hard links") from error
                raise
        _sync_folders(path.parent, self._root)
        return True

    @staticmethod
    def _require_same(key: str, path: Path, digest: str) -> None:
        actual = _digest(path.read_bytes())
        if actual == digest:
            return
        if _recorded(path) == digest:
            raise ObjectCorruptError(f"{key} does not match its recorded checksum")
        raise ObjectConflictError(f"{key} already holds other bytes: {actual[:12]}, refused {digest[:12]}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checksum_path(path: Path) -> Path:
    return path.with_name(path.name + _SUFFIX)


def _recorded(path: Path) -> str | None:
    try:
        return _checksum_path(path).read_text(encoding="ascii").split(maxsplit=1)[0]
    except FileNotFoundError:
        return None


def _sync_folders(folder: Path, root: Path) -> None:
    # A name outlives a power cut only once its folder is synced, and so on up to the root.
    while True:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if folder == root:
            return
        folder = folder.parent
