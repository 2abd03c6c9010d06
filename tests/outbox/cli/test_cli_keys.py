"""`outbox keys` against real jobs and a real key file."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from outbox.cli import keys, root
from outbox.database.link import Link
from outbox.reading.opening import Opened, OpenedThing
from outbox.sealing import use
from outbox.sealing.rotating import SealCounts, count_seals
from outbox_schemas import Payload
from support.database import Database
from support.jobs import submit
from support.sealing import ring, secret, using

WHO = ("--by", "ops", "--reason", "the year's end")


class Hidden(Payload):
    """A sealed payload."""

    kind: ClassVar[str] = "test.hidden"
    sealed: ClassVar[bool] = True
    key: str
    note: str = "canary\x1b[31m"

    def logical_key(self) -> str:
        """Return the key."""
        return self.key


def key_file(folder: Path, primary: str, *others: str) -> str:
    """Write a key file with the secrets of the tests' rings, and return its path."""
    text = f'digest_key = "{base64.b64encode(secret("digest")).decode()}"\n'
    for name in (primary, *others):
        text += f'[keys.{name}]\nsecret = "{base64.b64encode(secret(name)).decode()}"\n'
        text += "primary = true\n" if name == primary else ""
    path = folder / f"{primary}.toml"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def run(database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Run a command line with a key file of these keys; return exit code, stdout and stderr. No secret is shown."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database.url)

    def run(keys: list[str], *arguments: str) -> tuple[int, str, str]:
        monkeypatch.delenv("OUTBOX_KEYS_FILE", raising=False)
        if keys:
            monkeypatch.setenv("OUTBOX_KEYS_FILE", key_file(tmp_path, *keys))
        use(None)
        code = root.run(["keys", *arguments])
        use(None)
        shown = capsys.readouterr()
        for name in (*keys, "digest"):
            assert base64.b64encode(secret(name)).decode() not in shown.out + shown.err
        return code, shown.out, shown.err

    return run


def test_list_rotate_list(run: Any, database: Database) -> None:
    """The old key's jobs are counted, rotated, and none is left."""
    with using(ring("old")):
        submit(database, payloads=[Hidden(key=f"k{number}") for number in range(5)])
    code, shown, _ = run(["new", "old"], "list", "--json")
    answer = json.loads(shown)
    assert code == 0
    assert answer["keys"] == [
        {"key": "old", "jobs": 5, "waiting": 0, "standing": "opens"},
        {"key": "new", "jobs": 0, "waiting": 0, "standing": "seals and opens"},
    ]
    code, shown, _ = run(["new", "old"], "rotate", *WHO, "--batch", "2", "--json")
    assert code == 0
    answer = json.loads(shown)
    assert (answer["rotation"]["state"], answer["rotation"]["rotated"], answer["resumed"]) == ("done", 5, False)
    shown = run(["new"], "list")[1]
    assert [line.split()[:2] for line in shown.splitlines()] == [["KEY", "JOBS"], ["new", "5"]]
    assert "not known here" in run([], "list")[1]


def test_a_count_holds_nothing_between_its_batches(
    run: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it may go on, an upgrade of the tables gets its lock at once."""
    with using(ring("old")):
        submit(database, payloads=[Hidden(key=f"k{number}") for number in range(5)])
    locked: list[bool] = []

    def counted(link: Link, *, batch: int, more: Callable[[], bool]) -> SealCounts:
        def lock() -> bool:
            with database.connect(autocommit=False) as upgrade:
                upgrade.execute("SET LOCAL lock_timeout = '2s'")
                upgrade.execute(database.sql("LOCK TABLE {s}.jobs IN ACCESS EXCLUSIVE MODE"))
            locked.append(True)
            return more()

        return count_seals(link, batch=2, more=lock)

    monkeypatch.setattr(keys, "count_seals", counted)
    assert run(["old"], "list")[0] == 0
    assert len(locked) == 2


def test_rotate_tells_what_is_left(run: Any, database: Database) -> None:
    """Jobs that can't be opened, and jobs that somebody holds, are told, and the exit code is 1."""
    with using(ring("lost")):
        submit(database, payloads=[Hidden(key="a")])
    code, shown, _ = run(["new"], "rotate", *WHO)
    assert code == 1
    assert "1 job could not be opened" in shown
    with using(ring("old")):
        (job_id,) = submit(database, payloads=[Hidden(key="b")])
    with database.connect(autocommit=False) as holder:
        holder.execute(database.sql("SELECT FROM {s}.outbox WHERE job_id = %s FOR UPDATE", escaped=True), [job_id])
        code, shown, _ = run(["new", "old"], "rotate", *WHO, "--wait", "0")
        assert code == 1
        assert "1 job was held by others" in shown
    code, shown, _ = run(["new", "old"], "rotate", *WHO)
    assert "gone on with" in shown


def test_open_shows_a_job_in_clear(run: Any, database: Database) -> None:
    """With the key, who and why: the payload, in text that drives no terminal."""
    with using(ring("k1")):
        (job_id,) = submit(database, payloads=[Hidden(key="a")])
    code, shown, _ = run(["k1"], "open", str(job_id), *WHO)
    assert code == 0
    assert "canary" in shown
    assert "\x1b" not in shown
    code, shown, _ = run(["k1"], "open", str(job_id), *WHO, "--json")
    assert json.loads(json.loads(shown)["opened"][0]["text"])["note"] == "canary\x1b[31m"
    assert database.count("audit WHERE action = 'job.open'") == 2
    code, shown, errors = run(["k2"], "open", str(job_id), *WHO, "--json")
    assert (code, json.loads(errors)["error"]["code"]) == (1, "unknown_key")
    assert database.count("audit WHERE action = 'job.open'") == 2
    assert run([], "open", str(job_id), *WHO)[0] == 2
    assert run(["k1"], "open", str(job_id))[0] == 2
    assert run(["k1"], "open", str(job_id), "--by", "a\x1bb", "--reason", "x")[0] == 2
    for limit in ("0", "10001", "-1"):
        assert run(["k1"], "open", str(job_id), *WHO, "--limit", limit)[0] == 2
    assert database.count("audit WHERE action = 'job.open'") == 2


def test_open_gives_each_line_of_a_text_its_own() -> None:
    """A traceback keeps its calls apart, behind its name; what has one line stands beside it."""
    told = [
        OpenedThing("last error", "it is\x1b[31m late"),
        OpenedThing("traceback of attempt 1", "a.py:1 f\nb.py:2 \x1b[31mg\r\nraised from KeyError"),
        OpenedThing("error of attempt 1", ""),
    ]
    assert list(keys._opened_lines(Opened(told))) == [
        "last error: it is[31m late",
        "traceback of attempt 1:",
        "  a.py:1 f",
        "  b.py:2 [31mg",
        "  raised from KeyError",
        "error of attempt 1: ",
    ]


def test_a_wrong_key_file_is_a_matter_of_settings(
    run: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before anything happens."""
    monkeypatch.setenv("OUTBOX_KEYS_FILE", "/nonexistent/keys.toml")
    use(None)
    assert root.run(["keys", "list"]) == 2
    use(None)
