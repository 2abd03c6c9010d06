"""The folder store: creation only if absent under every race, checksums, and keys that stay inside."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from statements.store import FolderStore, ObjectConflictError, ObjectCorruptError

EXAMPLES = Path(__file__).parents[2] / "examples"
KEY = "statements/acct_91/2026-05/v3.pdf"
RACER = """
import sys
from pathlib import Path
from statements.store import FolderStore, ObjectConflictError
store, data = FolderStore(Path(sys.argv[1])), sys.argv[2].encode() * 50000
print("ready", flush=True)
sys.stdin.readline()
try:
    print(store.put_if_absent(sys.argv[3], data))
except ObjectConflictError:
    print("refused")
"""


def _files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_put_then_head_and_get(store: FolderStore, tmp_path: Path) -> None:
    """What was put is found with its checksum, nothing half-written stays, and sha256sum can read it."""
    digest = store.put_if_absent(KEY, b"bytes")
    head = store.head(KEY)
    assert head is not None
    assert (head.size, head.sha256) == (5, digest) == (5, hashlib.sha256(b"bytes").hexdigest())
    assert store.get(KEY) == b"bytes"
    assert _files(tmp_path / "store") == {KEY, KEY + ".sha256"}
    assert (tmp_path / "store" / (KEY + ".sha256")).read_text() == f"{digest}  v3.pdf\n"


def test_absent(store: FolderStore) -> None:
    """An absent object has no head and can't be read."""
    assert store.head(KEY) is None
    with pytest.raises(KeyError):
        store.get(KEY)


def test_same_bytes_again_are_welcome_and_others_refused(store: FolderStore) -> None:
    """A repeat changes nothing; other bytes under the key are refused and the first ones stay."""
    assert store.put_if_absent(KEY, b"first") == store.put_if_absent(KEY, b"first")
    with pytest.raises(ObjectConflictError):
        store.put_if_absent(KEY, b"second")
    assert store.get(KEY) == b"first"


def test_threads_race_for_one_key(store: FolderStore) -> None:
    """Of many threads with two contents, one content wins and every other writer is told."""
    barrier = Barrier(16)

    def write(number: int) -> bytes | None:
        data = b"ab"[number % 2 : number % 2 + 1] * 50_000
        barrier.wait(timeout=20)
        try:
            store.put_if_absent(KEY, data)
        except ObjectConflictError:
            return None
        return data

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(write, range(16)))
    assert outcomes.count(None) == 8
    assert {outcome for outcome in outcomes if outcome} == {store.get(KEY)}


def test_processes_race_for_one_key(store: FolderStore, tmp_path: Path) -> None:
    """The same holds between processes, which share nothing but the folder."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path / "store"), "ab"[number % 2], KEY],
            env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    outcomes = [racer.communicate("go\n", timeout=30)[0].strip() for racer in racers]
    winner = hashlib.sha256(store.get(KEY)).hexdigest()
    assert sorted(outcomes) == sorted(["refused"] * 3 + [winner] * 3)


def test_writer_that_died_before_the_checksum(store: FolderStore, tmp_path: Path) -> None:
    """An object without its checksum counts as incomplete until the same bytes are put again."""
    path = tmp_path / "store" / KEY
    path.parent.mkdir(parents=True)
    path.write_bytes(b"bytes")
    head = store.head(KEY)
    assert head is not None
    assert head.sha256 is None
    with pytest.raises(KeyError):
        store.get(KEY)
    with pytest.raises(ObjectConflictError):
        store.put_if_absent(KEY, b"other")
    store.put_if_absent(KEY, b"bytes")
    assert store.get(KEY) == b"bytes"


def test_damage_is_found(store: FolderStore, tmp_path: Path) -> None:
    """Bytes that rot on the disk are found on reading and on writing, never passed on."""
    store.put_if_absent(KEY, b"bytes")
    (tmp_path / "store" / KEY).write_bytes(b"bytez")
    with pytest.raises(ObjectCorruptError):
        store.get(KEY)
    with pytest.raises(ObjectCorruptError):
        store.put_if_absent(KEY, b"bytes")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "a/../b",
        "..",
        "a//b",
        ".incoming/x",
        "a/.hidden",
        "a\\b",
        "a\0b",
        "é",
        "a/b\n",
        "x" * 201,
        "a/" * 600 + "a",
        "a.pdf.sha256",
    ],
)
def test_keys_stay_inside(store: FolderStore, tmp_path: Path, key: str) -> None:
    """A key that could leave the folder, hide, or meet a checksum file is refused."""
    with pytest.raises(ValueError, match="key"):
        store.put_if_absent(key, b"bytes")
    assert _files(tmp_path) == set()


def test_abandoned_files_are_removed(store: FolderStore, tmp_path: Path) -> None:
    """What a dead writer left goes after a while; what a living one writes now stays."""
    incoming = tmp_path / "store" / ".incoming"
    (incoming / "old").write_bytes(b"x")
    (incoming / "new").write_bytes(b"x")
    os.utime(incoming / "old", (0, 0))
    store.remove_abandoned(timedelta(hours=1))
    assert _files(incoming) == {"new"}


def test_store_needs_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder named there is no store in some surprising place."""
    monkeypatch.delenv("STATEMENTS_STORE", raising=False)
    with pytest.raises(ValueError, match="STATEMENTS_STORE"):
        FolderStore.from_environment()
