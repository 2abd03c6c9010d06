"""From how a child ended to what the attempt's row says. Pure."""

from __future__ import annotations

import signal

from outbox.leases.ending import Failure
from outbox_consumer.contract.isolation_terms import Terms
from outbox_consumer.failing.failures import MESSAGE_CHARACTERS, TRACEBACK_CHARACTERS, storable

__all__ = ["MEMORY_NOTE", "failed_start", "failure_of_exit", "over_memory", "over_output"]

MEMORY_NOTE = b"outbox: memory_limit\n"
_HINTS = {
    "SIGKILL": "; perhaps by the kernel, for want of memory",
    "SIGXCPU": "; it has used up its processor time",
}


def failure_of_exit(code: int, last_words: bytes, terms: Terms) -> Failure:
    """Return the failure of an attempt whose process ended without an answer.

    Args:
        code: the exit code, or a signal's number, negative.
        last_words: what the process left in its pipe for that: the mark of its own memory watch, or the stacks that
            Python's faulthandler writes.
        terms: its limits.
    """
    if last_words.startswith(MEMORY_NOTE):
        return _failure("memory_limit", over_memory("the process held more memory than", terms))
    stacks = last_words.decode("utf-8", "replace")
    if code >= 0:
        return _failure(f"child_exit_{code}", f"the process ended with exit code {code} before the handler did", stacks)
    name = _signal_name(-code)
    if name == "SIGXCPU":
        limit = "" if terms.cpu_s is None else f" ({terms.cpu_s} s)"  # or somebody else has sent the signal
        return _failure(
            "cpu_limit", f"the attempt used more processor time than the handler's cpu_limit{limit}", stacks
        )
    return _failure(f"child_signal_{name}", f"the process was ended by {name}{_HINTS.get(name, '')}", stacks)


def over_memory(what: str, terms: Terms) -> str:
    """Return the words for what went beyond the handler's memory."""
    return f"{what} the handler's memory_limit ({terms.memory_bytes} bytes)"


def over_output(limit: int) -> Failure:
    """Return the failure of an attempt that printed, logged or returned more than it may."""
    return _failure(
        "output_limit", f"the attempt printed or returned more than the handler's output_limit ({limit} bytes)"
    )


def failed_start(problem: str) -> Failure:
    """Return the failure of an attempt that got no process to run in."""
    return _failure("child_start_failed", f"the handler's process did not start: {problem}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def _failure(code: str, message: str, stacks: str = "") -> Failure:
    return Failure(
        "retryable", code, storable(message, MESSAGE_CHARACTERS), storable(stacks, TRACEBACK_CHARACTERS) or None
    )
