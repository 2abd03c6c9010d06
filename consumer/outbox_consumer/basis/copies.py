"""What becomes of a forked copy of a worker. User code may fork, and its copy is for what the user forked it for; one
that comes back out of user code would go on as a second worker with the same leases: with half of the threads, and with
locks that nobody will ever release. So it ends where it comes back, and nothing of it reaches a job.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from outbox_consumer.basis.errors import MisuseError, is_a

__all__ = ["end_any_copy", "end_copy", "is_copy", "refuse_in_copy", "stay_in_this_process"]

_home: int | None = None
_copied = False


def stay_in_this_process() -> None:
    """Take this process for the worker's own. A fork of it is a copy, until it starts a worker itself."""
    global _home, _copied
    _home, _copied = os.getpid(), False


def is_copy() -> bool:
    """Tell whether this process was forked from the worker's own."""
    return _home is not None and os.getpid() != _home


def refuse_in_copy(what: str) -> None:
    """Raise `MisuseError` if this process is a copy: before anything is written or sent, for the copy ends where user
    code comes back, so that nobody would record what came of it.
    """
    if is_copy():
        raise MisuseError(f"{what} in a forked copy of the worker would stay half done; call it in the handler itself")


def end_copy() -> None:
    """End this process at once if it is a copy: to be called wherever user code comes back, by return or exception.

    Nothing is flushed and no `finally` runs: they belong to the worker. Whoever waits for the copy gets its exit
    code as Python would give it: that of a `SystemExit`, 1 after another exception, 0 after a return. Costs next to
    nothing, but doesn't know a copy that a C library has made past Python.
    """
    if _copied:
        _end(sys.exc_info()[1])


def end_any_copy() -> None:
    """Do as `end_copy` whoever made the copy, at the price of a system call: once for each attempt."""
    if is_copy():
        _end(sys.exc_info()[1])


def _note_copy() -> None:
    global _copied  # noqa: PLW0603 - as above
    _copied = _home is not None


os.register_at_fork(after_in_child=_note_copy)


def _end(error: BaseException | None) -> NoReturn:
    if error is not None and not is_a(error, SystemExit):
        # Past the logs and `sys.stderr`: a thread that is not here may have held their locks.
        with suppress(OSError):
            os.write(2, f"outbox: a forked copy of a worker ended with {type(error).__name__}\n".encode())
    os._exit(_exit_code(error))


def _exit_code(error: BaseException | None) -> int:
    if not is_a(error, SystemExit):
        return 0 if error is None else 1
    code = error.code
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1
