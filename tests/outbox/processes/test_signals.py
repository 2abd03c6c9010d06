"""Requests to end: counted, and waited for without looking again and again."""

from __future__ import annotations

import os
import signal
import threading
import time

from outbox.processes.signals import counted_signals


def test_a_signal_ends_the_wait_for_one_at_once() -> None:
    """A process that waits for its end for long leaves off with the first signal, not when the wait is over."""
    with counted_signals() as requests:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        began = time.monotonic()
        while not requests.count:
            requests.wait(30)

        assert time.monotonic() - began < 15
        assert requests.last == signal.SIGTERM


def test_a_wait_without_a_signal_has_an_end() -> None:
    """What no signal tells can be looked for in between."""
    with counted_signals() as requests:
        requests.wait(0.01)

        assert requests.count == 0
