"""The demonstration's verdict: it has to see every way in which work could be lost or done twice."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from statements.accounts import Accounts
from statements.demo.evidence import STALE_EVENT, count_events, read_objects
from statements.demo.load import Accepted, keys
from statements.demo.plan import DemoError
from statements.demo.verdict import Document, Evidence, Issued, judge
from statements.store import FolderStore

KEY = ("acct_91", "2026-05", 2)
OBJECT = "statements/acct_91/2026-05/v2.pdf"
JOB = UUID(int=1)
NAME = "acct_91/2026-05/v2"


def _good() -> Evidence:
    return Evidence(
        accepted=[Accepted(KEY, JOB, created=True), Accepted(KEY, JOB, created=False)],
        jobs={JOB: "succeeded"},
        following=["succeeded", "succeeded"],
        attempts=[(JOB, "lease_lost"), (JOB, "succeeded")],
        statements=[Issued(KEY, "available", OBJECT, 1)],
        documents=[Document(KEY, OBJECT, "d" * 64)],
        objects={OBJECT: "d" * 64},
        stale_writes_refused=1,
        charges={NAME: 1},
        mails={NAME: 2},
        charges_reconciled=1,
    )


def test_good_run() -> None:
    """A run in which every promise was kept once has nothing lost and nothing duplicated."""
    verdict = judge(_good())
    assert verdict.ok
    assert verdict.problems == []
    assert dict(verdict.rows()) == {
        "submitted": 2,
        "statements": 1,
        "jobs": 3,
        "attempts": 2,
        "leases recovered": 1,
        "stale writes refused": 1,
        "artifacts": 1,
        "charges": 1,
        "charges reconciled": 1,
        "dead letters redriven": 0,
        "mails": 2,
        "mails sent again": 1,
        "lost": 0,
        "duplicated": 0,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": {}},
        {"jobs": {JOB: "failed"}},
        {"jobs": {JOB: "running"}},
        {"statements": []},
        {"statements": [Issued(KEY, "pending", None, 0)]},
        {"statements": [Issued(KEY, "available", "elsewhere.pdf", 1)]},
        {"documents": [], "objects": {}},
        {"objects": {}},
        {"objects": {OBJECT: None}},
        {"objects": {OBJECT: "e" * 64}},
        {"charges": {}},
        {"mails": {}},
    ],
)
def test_each_missing_piece_counts_as_lost(change: dict[str, object]) -> None:
    """A statement that lacks its job's success, its pointer, its row or its bytes is lost, once."""
    verdict = judge(replace(_good(), **change))
    assert not verdict.ok
    assert (verdict.lost, verdict.duplicated) == (1, 0)
    assert len(verdict.problems) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"accepted": [Accepted(KEY, JOB, created=True), Accepted(KEY, JOB, created=True)]},
        {"statements": [Issued(KEY, "available", OBJECT, 2)]},
        {"charges": {NAME: 2}},
        {"attempts": [(JOB, "succeeded"), (JOB, "succeeded")]},
        {"jobs": {JOB: "succeeded", UUID(int=2): "succeeded"}},
        {"objects": {OBJECT: "d" * 64, "statements/other.pdf": "d" * 64}},
    ],
)
def test_each_surplus_counts_as_duplicated(change: dict[str, object]) -> None:
    """A second creation, a second apply, a second success, a job or an object too many is a duplicate."""
    verdict = judge(replace(_good(), **change))
    assert not verdict.ok
    assert (verdict.lost, verdict.duplicated) == (0, 1)


def test_two_jobs_for_one_statement_are_a_duplicate() -> None:
    """Two job ids for one statement are a duplicate even if both succeeded."""
    other = uuid4()
    accepted = [Accepted(KEY, JOB, created=True), Accepted(KEY, other, created=False)]
    verdict = judge(replace(_good(), accepted=accepted, jobs={JOB: "succeeded", other: "succeeded"}))
    assert (verdict.lost, verdict.duplicated) == (0, 1)


def test_objects_are_read_and_not_believed(tmp_path: Path) -> None:
    """The store is judged by its bytes: a damaged or incomplete object has no checksum."""
    store = FolderStore(tmp_path)
    good = store.put_if_absent("a/good.pdf", b"good")
    store.put_if_absent("a/damaged.pdf", b"good")
    (tmp_path / "a/damaged.pdf").write_bytes(b"gone")
    (tmp_path / "a/incomplete.pdf").write_bytes(b"good")
    assert read_objects(tmp_path) == {"a/good.pdf": good, "a/damaged.pdf": None, "a/incomplete.pdf": None}


def test_events_are_counted_in_logs(tmp_path: Path) -> None:
    """Only the event itself counts, and what is no JSON is passed over."""
    log = tmp_path / "consumer.log"
    log.write_text(
        f'{{"event": "{STALE_EVENT}"}}\nTraceback\n{{"event": "other"}}\n[1]\n{{"event": "{STALE_EVENT}"}}\n'
    )
    assert count_events([log], STALE_EVENT) == 2


def test_wanted_statements_are_distinct(accounts: Accounts) -> None:
    """The input is large enough for the demonstration, and asking for more than it has is refused."""
    assert len(set(keys(accounts, 300))) == 300
    with pytest.raises(DemoError, match="300"):
        keys(accounts, 301)
