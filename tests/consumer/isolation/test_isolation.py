"""Handlers in processes of their own: what a crash costs, what a limit stops, what a lost lease ends."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from outbox import cancel
from support.consuming import Desk, handler, overrun
from support.invariants import check_invariants
from support.isolated import (
    CardHandler,
    LeasedHandler,
    RenewedHandler,
    ScriptHandler,
    SealedHandler,
    StrictHandler,
    UnreadableHandler,
)
from support.isolated_payloads import Card, Sealed, Strict, Unreadable, is_alive, submit
from support.sealing import ring, secret, using
from support.waiting import until


def notes(desk: Desk) -> list[str]:
    """Return what was applied."""
    return [note for (note,) in desk.database.rows("SELECT note FROM public.effects")]


CRASHES = {
    "killed": "child_signal_SIGKILL",
    "exits": "child_exit_3",
    "segfaults": "child_signal_SIGSEGV",
}


@pytest.mark.parametrize("does", CRASHES)
def test_crash_of_a_child_is_an_ordinary_failed_attempt(desk: Desk, tmp_path: Path, does: str) -> None:
    """The attempt is charged and retried under the crash's own code; a neighbour that runs meanwhile loses nothing."""
    gate = desk.gate()
    desk.start(ScriptHandler(), handler(lambda job, _: gate.wait(job)), concurrency=2)
    [neighbour] = desk.submit("neighbour")
    gate.holds(1)
    job_id = submit(desk, does, tmp_path)
    until(lambda: desk.state(job_id) == "succeeded")
    gate.open()
    desk.done(2)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.last_error(job_id)[:2] == ("retryable", CRASHES[does])
    assert desk.outcomes(neighbour) == ["succeeded"]
    assert notes(desk) == [f"later by {os.getpid()}"]
    if does == "segfaults":
        stack = desk.database.value("SELECT traceback FROM {s}.attempts WHERE number = 1 AND job_id = %s", job_id)
        assert "in segfaults" in stack
    assert check_invariants(desk.database) == []


def test_a_payload_whose_reader_would_end_the_process_fails_its_attempt_alone(desk: Desk, tmp_path: Path) -> None:
    """It is recorded, and its lease isn't renewed for ever with nobody at work."""
    desk.start(UnreadableHandler())
    job_id = submit(desk, "pid", tmp_path, payload=Unreadable)
    until(lambda: desk.state(job_id) == "failed")
    assert desk.outcomes(job_id) == ["failed"]
    assert desk.last_error(job_id)[:2] == ("terminal", "payload_invalid")


def test_errors_keep_their_class_and_code(desk: Desk, tmp_path: Path) -> None:
    """What a handler raises in a child is treated as if it had been raised here; its process goes on."""
    running = desk.start(ScriptHandler(), concurrency=1)
    failed = submit(desk, "raises", tmp_path)
    left = submit(desk, "exits_in_python", tmp_path)
    slow = submit(desk, "throttled", tmp_path)
    until(lambda: desk.state(failed) == "failed" and desk.state(left) == "succeeded" and desk.outcomes(slow))
    assert desk.last_error(failed) == ("terminal", "no_customer", "no such \N{REPLACEMENT CHARACTER} customer")
    assert desk.last_error(left)[:2] == ("unknown", "SystemExit")
    assert desk.last_error(slow)[:2] == ("throttled", "throttled")
    trace = desk.database.value("SELECT traceback FROM {s}.attempts WHERE job_id = %s", failed)
    assert "isolated.py" in trace
    until(lambda: running.held() == 0)


LIMITS = {
    "grows": ("memory_limit", "(268435456 bytes)"),
    "spins": ("cpu_limit", "(1 s)"),
    "prints": ("output_limit", "(1048576 bytes)"),
    "returns_much": ("output_limit", "(1048576 bytes)"),
}


@pytest.mark.parametrize("does", LIMITS)
def test_limit_ends_the_attempt_alone(desk: Desk, tmp_path: Path, does: str) -> None:
    """An attempt that takes more than its handler allows fails under the limit's code, which is told; the next one
    runs.
    """
    desk.start(StrictHandler(), concurrency=1)
    job_id = submit(desk, does, tmp_path, payload=Strict)
    after = submit(desk, "pid", tmp_path, payload=Strict)
    until(lambda: desk.state(job_id) == "failed" and desk.state(after) == "succeeded")
    code, limit = LIMITS[does]
    error_class, told, message = desk.last_error(job_id)
    assert (error_class, told, limit in message) == ("retryable", code, True)
    assert not (tmp_path / "printed").exists()
    if does == "grows":  # what it still holds would be held against the next one
        grown = (tmp_path / "grown").read_text(encoding="ascii")
        assert not notes(desk)[0].startswith(f"{grown} by ")


def test_result_that_no_pipe_can_carry_waits_for_a_person(desk: Desk, tmp_path: Path) -> None:
    """A result that can't be pickled for `apply` is a defect that no further try would mend."""
    desk.start(ScriptHandler(), concurrency=1)
    job_id = submit(desk, "returns_a_lock", tmp_path)
    desk.done(1, "failed")
    assert desk.last_error(job_id)[:2] == ("terminal", "result_unsendable")


@pytest.mark.parametrize("does", ["forever", "stubborn", "asks"])
def test_overrun_frees_its_slot(desk: Desk, tmp_path: Path, does: str) -> None:
    """Past its maximum runtime a handler is told, then interrupted, then killed; its slot runs the next attempt."""
    running = desk.start(ScriptHandler(), concurrency=1)
    job_id = submit(desk, does, tmp_path)
    until((tmp_path / "running").exists)
    pid = int((tmp_path / "running").read_text(encoding="ascii"))
    overrun(running, by_s=6 * 3600)
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert desk.last_error(job_id)[:2] == ("retryable", "max_runtime_exceeded")
    assert is_alive(pid) is (does != "stubborn")
    assert (tmp_path / "interrupted").exists() is (does == "stubborn")
    assert (tmp_path / "told").exists() is (does == "asks")


@pytest.mark.parametrize(
    ("does", "code"), [("sends_forever", "LeaseLost"), ("sends_stubbornly", "max_runtime_exceeded")]
)
def test_overrun_in_an_effect_leaves_it_uncertain(desk: Desk, tmp_path: Path, does: str, code: str) -> None:
    """Interrupted or killed in the middle of a call: the attempt ends right after that, and not before it is on
    record that nobody knows what came of it.
    """
    running = desk.start(LeasedHandler(), concurrency=1)
    job_id = submit(desk, does, tmp_path)
    until((tmp_path / "running").exists)
    pid = int((tmp_path / "running").read_text(encoding="ascii"))
    overrun(running, by_s=6 * 3600)
    until(lambda: desk.outcomes(job_id))
    assert desk.database.rows("SELECT name, state, error_code FROM {s}.effects") == [("charge", "uncertain", code)]
    assert (tmp_path / "left").exists() if does == "sends_forever" else not is_alive(pid)
    desk.done(1, "failed")  # nobody ever asks about it
    assert check_invariants(desk.database) == []


def test_lease_that_is_lost_ends_the_handler(desk: Desk, tmp_path: Path) -> None:
    """A cancel reaches a handler that never asks: it is interrupted, and nothing is applied."""
    running = desk.start(ScriptHandler(), concurrency=1, heartbeat_s=0.1)
    job_id = submit(desk, "forever", tmp_path)
    until((tmp_path / "running").exists)
    with desk.database.engine().begin() as connection:
        cancel(connection, job_id, by="me", reason="test")
    until(lambda: running.consumer.running() == 0)
    assert desk.outcomes(job_id) == ["cancelled"]
    assert notes(desk) == []


def test_overrun_within_a_transaction_is_rolled_back(desk: Desk, tmp_path: Path) -> None:
    """A child that is killed inside its own transaction gives its row free, and its end is written after it."""
    running = desk.start(ScriptHandler(), concurrency=1)
    job_id = submit(desk, "sits_in_a_transaction", tmp_path)
    until((tmp_path / "running").exists)
    until(lambda: running.consumer._book.entries()[0].job.holds_fence)
    overrun(running, by_s=6 * 3600)
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]


def test_child_serves_its_number_of_jobs(desk: Desk, tmp_path: Path) -> None:
    """Ten jobs share a process, and the eleventh has a new one; each is applied once, here."""
    desk.start(RenewedHandler(), concurrency=1)
    jobs = [submit(desk, "pid", tmp_path) for _ in range(11)]
    desk.done(11)
    found = desk.database.rows("SELECT job_id, split_part(note, ' by ', 1) AS pid, note FROM public.effects")
    assert sorted(job_id for job_id, _, _ in found) == sorted(jobs)
    assert {note.partition(" by ")[2] for _, _, note in found} == {str(os.getpid())}
    counts = [sum(pid == other for _, other, _ in found) for _, pid, _ in found]
    assert sorted(set(counts)) == [1, 10]


def test_job_works_in_the_child(desk: Desk, tmp_path: Path) -> None:
    """Transactions, checkpoints and follow-up jobs go through the fence from the child itself."""
    desk.start(ScriptHandler(), concurrency=1)
    submit(desk, "uses_the_database", tmp_path)
    desk.done(2)
    assert f"page 12 by {os.getpid()}" in notes(desk)
    assert check_invariants(desk.database) == []


@pytest.mark.parametrize("does", ["charges", "leaves_a_charge"])
def test_effect_of_a_child_that_fails_is_not_sent_again(desk: Desk, tmp_path: Path, does: str) -> None:
    """The ledger of effects is kept by the child itself: the next attempt finds the result and calls nobody, after a
    crash as after an error beside which a thread was still charging.
    """
    desk.start(ScriptHandler(), concurrency=1)
    job_id = submit(desk, does, tmp_path, attempts=2)
    desk.done(1)
    assert desk.outcomes(job_id) == ["retried", "succeeded"]
    assert len((tmp_path / "charges").read_text(encoding="ascii").splitlines()) == 1
    assert notes(desk) == [f"paid by {os.getpid()}"]


def test_marker_comes_from_the_child(desk: Desk, tmp_path: Path) -> None:
    """Progress that is told in the child is stored with the consumer's heartbeats."""
    desk.start(ScriptHandler(), concurrency=1, heartbeat_s=0.1)
    submit(desk, "reports", tmp_path)
    until(lambda: desk.database.value("SELECT progress FROM {s}.outbox") == "page 999")
    (tmp_path / "go").touch()
    desk.done(1)


def test_a_thread_that_was_left_behind_speaks_of_its_own_attempt(desk: Desk, tmp_path: Path) -> None:
    """What it does is no part of the next job's history, though both run in one process."""
    desk.start(ScriptHandler(), concurrency=1)
    submit(desk, "leaves_a_thread", tmp_path)
    desk.done(1)
    job_id = submit(desk, "comes_after", tmp_path)
    desk.done(2)
    query = "SELECT effects_touched FROM {s}.attempts WHERE job_id = %s"
    assert desk.database.rows(query, job_id) == [(None,)]
    assert desk.database.count("effects") == 0


def test_log_of_a_child_is_the_consumers(desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A child's log records arrive with their facts and their job; what it prints goes nowhere."""
    desk.start(ScriptHandler(), concurrency=1)
    job_id = submit(desk, "logs", tmp_path)
    desk.done(1)
    [record] = [record for record in caplog.records if record.name == "mine"]
    assert (record.getMessage(), record.page, record.job_id) == ("seen 100%", 7, str(job_id))  # type: ignore[attr-defined]
    assert "not for the log" not in caplog.text


def test_child_hides_what_is_sensitive(desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A sensitive value that a handler logs and raises in a child is masked before it leaves it."""
    desk.start(CardHandler(), concurrency=1)
    job_id = submit(desk, "quotes", tmp_path, payload=Card)
    desk.done(1, "failed")
    assert desk.last_error(job_id) == ("unknown", "ValueError", "***")
    [record] = [record for record in caplog.records if record.name == "mine"]
    assert (record.getMessage(), record.card) == ("refused ***", "***")  # type: ignore[attr-defined]


def test_child_hides_what_is_said_beside_its_thread(desk: Desk, tmp_path: Path) -> None:
    """A marker stays out of the tables where the child's payload is sensitive, and an effect's error is masked there
    on a thread of the handler's own.
    """
    running = desk.start(CardHandler(), concurrency=1, heartbeat_s=0.1)
    submit(desk, "quotes_abroad", tmp_path, payload=Card)
    until((tmp_path / "said").exists)
    [entry] = running.consumer._book.entries()
    until(lambda: entry.job.marker[0] is not None)
    beaten = entry.trusted_until
    until(lambda: entry.trusted_until > beaten + 0.2)
    assert desk.database.value("SELECT progress FROM {s}.outbox") is None
    (tmp_path / "looked").touch()
    desk.done(1, "failed")
    assert desk.database.value("SELECT error_message FROM {s}.effects") == "no to ***"


def test_child_opens_what_the_settings_keys_open(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key file is read by the child itself; a key that only the program gave is not sent to it."""
    key = base64.b64encode(secret("k1")).decode()
    file = tmp_path / "keys.toml"
    digest_key = base64.b64encode(secret("digest")).decode()
    file.write_text(f'digest_key = "{digest_key}"\n[keys.k1]\nsecret = "{key}"\nprimary = true\n', encoding="ascii")
    file.chmod(0o600)
    with using(ring("k1")):
        running = desk.start(SealedHandler(), concurrency=1)
        refused = submit(desk, "pid", tmp_path, payload=Sealed)
        desk.done(1, "failed")
        assert desk.last_error(refused)[:2] == ("retryable", "child_lacks_key")
        running.stop()
        monkeypatch.setenv("OUTBOX_KEYS_FILE", str(file))
        desk.start(SealedHandler(), concurrency=1)
        submit(desk, "pid", tmp_path, payload=Sealed)
        desk.done(1)


def test_what_a_child_has_started_ends_with_it(desk: Desk, tmp_path: Path) -> None:
    """A process that a handler has left behind is ended with the child's group."""
    desk.start(ScriptHandler(), concurrency=1)
    submit(desk, "leaves_a_child", tmp_path)
    desk.done(1)
    pid = int((tmp_path / "grandchild").read_text(encoding="ascii"))
    until(lambda: not is_alive(pid))


def test_end_of_the_consumer_ends_its_children(desk: Desk, tmp_path: Path) -> None:
    """Work that is let go at the end leaves no process behind, however stubborn."""
    running = desk.start(ScriptHandler(), concurrency=1)
    submit(desk, "stubborn", tmp_path)
    until((tmp_path / "running").exists)
    pid = int((tmp_path / "running").read_text(encoding="ascii"))
    assert not running.stop(0, quick=True)
    until(lambda: not is_alive(pid), within_s=5)
