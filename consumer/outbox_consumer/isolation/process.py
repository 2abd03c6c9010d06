"""A child as the consumer sees it: started, listened to, told, and ended for sure."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

from outbox.leases.ending import Failure
from outbox_consumer.contract.isolation_terms import Terms
from outbox_consumer.failing.failures import Reported
from outbox_consumer.isolation.causes import failed_start, failure_of_exit
from outbox_consumer.isolation.frames import Kind, frame
from outbox_consumer.isolation.line import Line

__all__ = ["Child"]

# It finds this package where we did. The first line on the socket is the path; what follows are frames.
_BOOT = (
    "import json, os, sys; "
    "line = os.fdopen(int(sys.argv[1]), 'rb', 0, closefd=False); "
    "sys.path[:] = json.loads(line.readline()); "
    "from outbox_consumer.isolation.child import main; main()"
)
_START_S = 60.0
_SEND_S = 5.0
_END_S = 1.0
_PAUSE_S = 0.01
_CHUNK = 64 * 1024
_LAST_WORDS = 32 * 1024


class Child:
    """One child process. `kill` may be called from any thread; everything else belongs to whoever has borrowed it.

    Attributes:
        jobs: how many attempts it has been given.
        printed: how many bytes it has printed since `clear`.
        answered: its last attempt has ended in order, so that another one may follow.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.jobs = 0
        self.printed = 0
        self.answered = True
        self.started_at = time.monotonic()
        self._guard = threading.Lock()
        self._swept = False
        with ExitStack() as passed, ExitStack() as kept:
            ours, theirs = (kept.enter_context(end) for end in socket.socketpair())
            self._output, output = _pipe(kept, passed)
            self._last_words, last_words = _pipe(kept, passed)
            self.line = Line(ours, terms.output_bytes, _SEND_S)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(last_words), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(), last_words),
                start_new_session=True,  # so that it ends together with what it has started
            )
            theirs.close()
            kept.pop_all()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def greet(self, hello: bytes) -> None:
        """Tell it what it is for, and wait until it is ready.

        Raises:
            Reported: it could not load the handler, or not in time.
        """
        path = [entry for entry in sys.path if isinstance(entry, str)]
        until = time.monotonic() + _START_S
        with suppress(OSError):  # it has ended already: seen below
            self.line.send(json.dumps(path).encode("ascii") + b"\n" + frame(Kind.HELLO, hello))
        while time.monotonic() < until:
            for kind, body in self.listen(0.5):
                if kind is Kind.READY:
                    return
                if kind is Kind.FAILED:
                    fields = json.loads(body)
                    raise Reported(failed_start(f"{fields['code']}: {fields['message']}"))
            if self.gone():
                raise Reported(failed_start(self.failure().message))
        raise Reported(failed_start(f"it was not ready within {_START_S:g} s"))

    def listen(self, timeout_s: float) -> list[tuple[Kind, bytes]]:
        """Return the frames that arrive within a while, none after its end; count and drop what it prints.

        Raises:
            FrameTooLarge: it sends more than it may.
        """
        waiting = select.poll()
        for descriptor in (self.line.fileno(), self._output):
            waiting.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in waiting.poll(timeout_s * 1000)}
        if self._output in ready:
            self._drain()
        frames = self.line.receive() if self.line.fileno() in ready else None
        if frames is None and ready:
            time.sleep(_PAUSE_S)  # one of them is closed and stays ready: the end is near
        return [] if frames is None else list(frames)

    def clear(self) -> None:
        """Forget what it has printed so far, and any last words that were not its end."""
        self._drain()
        if not self.gone():
            with suppress(OSError):
                os.read(self._last_words, _LAST_WORDS)
        self.printed = 0

    def gone(self) -> bool:
        """Tell whether the process has ended. Then nothing that it has started is left, either."""
        if self._process.poll() is None:
            return False
        with self._guard:
            # Once, and at once: where nothing is left of its group, its number may become that of a stranger.
            if not self._swept:
                self._swept = True
                with suppress(OSError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        return True

    def failure(self) -> Failure:
        """Return what its end means for the attempt that it ran. It has ended."""
        try:
            words = os.read(self._last_words, _LAST_WORDS)
        except OSError:
            words = b""
        return failure_of_exit(self._process.wait(), words, self.terms)

    def terminate(self) -> None:
        """Interrupt the handler, if its lease is lost."""
        with suppress(OSError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and what it has started, now."""
        with self._guard, suppress(OSError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """Tell it to end; it is not asked for anything any more."""
        self.line.close()

    def end(self) -> None:
        """Let it go, or end it within a second; release all that belongs to it."""
        self.dismiss()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self.gone()
        self._close()

    def _drain(self) -> None:
        with suppress(OSError):
            while data := os.read(self._output, _CHUNK):
                self.printed += len(data)
                if self.printed > self.terms.output_bytes:
                    return

    def _close(self) -> None:
        self.line.close()
        for descriptor in (self._output, self._last_words):
            os.close(descriptor)


def _pipe(kept: ExitStack, passed: ExitStack) -> tuple[int, int]:
    """Return a pipe: the end to read from, which never blocks, and the end for the child."""
    ours, theirs = os.pipe()
    kept.callback(os.close, ours)
    passed.callback(os.close, theirs)
    os.set_blocking(ours, False)
    return ours, theirs
