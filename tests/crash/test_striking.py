"""A barrier strikes where a cell means it to, and in nobody's request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from crash.processes import TESTS, Armed
from outbox.processes.barriers import Barrier

_PROGRAM = """
import threading
from crash import workload
from outbox.processes.barriers import Barrier, hit
striking = threading.Thread(target=hit, args=(Barrier.EFFECT_AFTER_LEAVE,))
with workload._air:
    striking.start()
    striking.join(0.5)
    print("waited", flush=True)
striking.join(10)
print("lived", flush=True)
"""


def test_a_barrier_waits_for_a_neighbours_mail(tmp_path: Path) -> None:
    """A process is struck when the mail that another of its threads had in the air has arrived, and not before."""
    armed = Armed(Barrier.EFFECT_AFTER_LEAVE).environment(tmp_path / "mark")
    env = {key: value for key, value in os.environ.items() if not key.startswith("OUTBOX_")}
    env |= armed | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("waited\n", -signal.SIGKILL), done.stderr
