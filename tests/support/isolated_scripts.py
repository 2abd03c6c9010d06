"""What a handler in a process of its own does, by the name that its job gives."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from outbox import enqueue
from outbox_consumer import LeaseLost, RetryPolicy, TerminalError, ThrottledError
from support.isolated_payloads import Script
from support.waiting import until

NEVER = threading.Event()
"""What a handler waits for that hangs."""

MIB = 1024 * 1024
ONCE = RetryPolicy(max_attempts=1)


def mark(payload: Script, name: str) -> None:
    """Leave a file with this process's id, for the test to see."""
    made = Path(payload.folder) / f".{name}"
    made.write_text(str(os.getpid()), encoding="ascii")
    made.rename(Path(payload.folder) / name)


def pid(job: Any, payload: Any) -> str:
    """Return the process."""
    return str(os.getpid())


def killed(job: Any, payload: Any) -> None:
    """End as the kernel ends a process that is too large."""
    os.kill(os.getpid(), signal.SIGKILL)


def exits(job: Any, payload: Any) -> None:
    """End without a word."""
    os._exit(3)


def exits_in_python(job: Any, payload: Any) -> None:
    """End as a script does."""
    sys.exit(7)


def segfaults(job: Any, payload: Any) -> None:
    """Read from nowhere."""
    ctypes.string_at(0)


def raises(job: Any, payload: Any) -> None:
    """Fail for good."""
    raise TerminalError("no such \x00 customer", code="no_customer")


def throttled(job: Any, payload: Any) -> None:
    """Fail for want of patience."""
    raise ThrottledError("slow down", retry_after=3)


def grows(job: Any, payload: Any) -> None:
    """Take all memory there is."""
    mark(payload, "grown")
    held = []
    while True:
        held.append(bytearray(os.urandom(16) * MIB))


def spins(job: Any, payload: Any) -> None:
    """Take all processor time there is."""
    while True:
        sum(range(1000))


def prints(job: Any, payload: Any) -> None:
    """Print 50 MB."""
    for _ in range(50):
        print("x" * MIB)
    mark(payload, "printed")


def returns_much(job: Any, payload: Any) -> bytes:
    """Return 50 MB."""
    return bytes(50 * MIB)


def returns_a_lock(job: Any, payload: Any) -> Any:
    """Return what no process can be sent."""
    return threading.Lock()


def logs(job: Any, payload: Any) -> None:
    """Log, and print."""
    logging.getLogger("mine").warning("seen %d%%", 100, extra={"page": 7})
    print("not for the log")


def quotes(job: Any, payload: Any) -> None:
    """Log, and fail, with what nobody may see."""
    logging.getLogger("mine").warning("refused %s", payload.card, extra={"card": payload.card})
    raise ValueError(payload.card)


def quotes_abroad(job: Any, payload: Any) -> None:
    """Say what nobody may see by a marker, and by an effect on a thread of its own; end once the test has looked."""
    job.progress(f"at {payload.card}")

    def send(_key: str, _request: Any) -> None:
        raise TerminalError(f"no to {payload.card}")

    def call() -> None:
        with suppress(TerminalError):
            job.effect("charge", {}, send=send)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    mark(payload, "said")
    until((Path(payload.folder) / "looked").exists)
    raise TerminalError("enough")


def forever(job: Any, payload: Any) -> None:
    """Never return."""
    mark(payload, "running")
    while True:
        NEVER.wait(60)


def stubborn(job: Any, payload: Any) -> None:
    """Never return, whatever it is told."""
    mark(payload, "running")
    while True:
        try:
            NEVER.wait(60)
        except LeaseLost:
            mark(payload, "interrupted")


def sends_forever(job: Any, payload: Any) -> None:
    """Call an effect whose other side never answers."""

    def send(_key: str, _request: Any) -> None:
        mark(payload, "running")
        try:
            NEVER.wait(60)
        finally:
            mark(payload, "left")

    job.effect("charge", {}, send=send)


def sends_stubbornly(job: Any, payload: Any) -> None:
    """Call one, and stay in it whatever it is told."""
    job.effect("charge", {}, send=lambda *_: stubborn(job, payload))


def holds_the_lock(job: Any, payload: Any) -> None:
    """Sleep in C, with the interpreter's lock held: no other thread of the process has its turn."""
    mark(payload, "running")
    ctypes.PyDLL(None).sleep(600)


def asks(job: Any, payload: Any) -> None:
    """Wait until the lease is lost."""
    mark(payload, "running")
    job.lost.wait(60)
    try:
        job.check()
    except LeaseLost:
        mark(payload, "told")
        raise


def leaves_a_child(job: Any, payload: Any) -> None:
    """Start a process and crash."""
    started = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait(600)"])
    (Path(payload.folder) / "grandchild").write_text(str(started.pid), encoding="ascii")
    os._exit(3)


def reports(job: Any, payload: Any) -> str:
    """Tell of progress, then wait."""
    for number in range(1000):
        job.progress(f"page {number}")
    mark(payload, "running")
    until((Path(payload.folder) / "go").exists)
    return "reported"


def uses_the_database(job: Any, payload: Any) -> str:
    """Write behind the fence, and read."""
    with job.transaction() as session:
        job.save_checkpoint(session, "page", 12)
        enqueue(session, Script(name=f"{payload.name}-next", does="pid"))
    return f"page {job.load_checkpoint('page')}"


def charges(job: Any, payload: Any) -> str:
    """Charge once, and crash before anybody hears of it but the ledger."""
    with (Path(payload.folder) / "charges").open("a", encoding="ascii") as ledger:
        paid = job.effect("charge", {"cents": 5}, send=lambda key, _request: ledger.write(f"{key}\n") and "paid")
    if job.attempt == 1:
        os._exit(3)
    return str(paid)


def sits_in_a_transaction(job: Any, payload: Any) -> None:
    """Keep the fence held."""
    with job.transaction():
        mark(payload, "running")
        NEVER.wait(600)


def leaves_a_thread(job: Any, payload: Any) -> str:
    """Leave a thread behind that goes on with the job."""

    def go_on() -> None:
        until((Path(payload.folder) / "go").exists)
        job.progress("left behind")
        with suppress(LeaseLost):
            job.effect("left_behind", {}, send=lambda *_: "sent")
        mark(payload, "gone_on")

    threading.Thread(target=go_on, daemon=True).start()
    return "left"


def leaves_a_charge(job: Any, payload: Any) -> str:
    """Fail while a thread of its own charges, which the next attempt must find on record."""

    def charge() -> str:
        def send(key: str, _request: Any) -> str:
            with (Path(payload.folder) / "charges").open("a", encoding="ascii") as ledger:
                mark(payload, "charging")
                NEVER.wait(0.5)  # a request takes its time
                ledger.write(f"{key}\n")
            return "paid"

        return str(job.effect("charge", {"cents": 5}, send=send, on_uncertain="resend"))

    if job.attempt > 1:
        return charge()
    threading.Thread(target=charge, daemon=True).start()
    until((Path(payload.folder) / "charging").exists)
    raise ConnectionError


def copies_itself(job: Any, payload: Any) -> str:
    """Fork, and have each copy come back another way."""
    codes = []
    for way in range(3):
        pid = os.fork()
        if pid == 0:
            if way == 0:
                return "a copy"
            logging.getLogger("mine").warning("from a copy")
            sys.exit(5) if way == 1 else os.kill(os.getpid(), signal.SIGTERM)
            raise TerminalError("a copy")
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return f"original {codes}"


def copies_itself_in_c(job: Any, payload: Any) -> str:
    """Fork as a C library does, past Python's hooks, and have the copy raise."""
    pid = ctypes.CDLL(None).fork()
    if pid == 0:
        raise TerminalError("a copy")
    return f"original {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"


def named(job: Any, payload: Any) -> str:
    """Return what no other job would."""
    return str(payload.name)


def comes_after(job: Any, payload: Any) -> str:
    """Wait until the thread that was left behind has gone on."""
    mark(payload, "go")
    until((Path(payload.folder) / "gone_on").exists)
    return "after"


SCRIPTS = {
    "leaves_a_thread": leaves_a_thread,
    "leaves_a_charge": leaves_a_charge,
    "comes_after": comes_after,
    "copies_itself": copies_itself,
    "copies_itself_in_c": copies_itself_in_c,
    "named": named,
    "pid": pid,
    "killed": killed,
    "exits": exits,
    "exits_in_python": exits_in_python,
    "segfaults": segfaults,
    "raises": raises,
    "throttled": throttled,
    "grows": grows,
    "spins": spins,
    "prints": prints,
    "returns_much": returns_much,
    "returns_a_lock": returns_a_lock,
    "logs": logs,
    "quotes": quotes,
    "quotes_abroad": quotes_abroad,
    "forever": forever,
    "stubborn": stubborn,
    "sends_forever": sends_forever,
    "sends_stubbornly": sends_stubbornly,
    "holds_the_lock": holds_the_lock,
    "asks": asks,
    "leaves_a_child": leaves_a_child,
    "reports": reports,
    "uses_the_database": uses_the_database,
    "charges": charges,
    "sits_in_a_transaction": sits_in_a_transaction,
}
