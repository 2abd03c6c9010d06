"""From whatever a handler raised to what is stored: classed, coded, bounded, masked, and safe for PostgreSQL and for
terminals.

Nothing here may fail: an exception can refuse to be printed, print fifty megabytes, be raised by its own `__str__`,
or come from a class whose `__init__` never ran.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from datetime import timedelta

from outbox.leases.ending import Failure
from outbox.texts.masking import masked_start, named
from outbox_consumer.basis.errors import PatientError, RetryableError, TerminalError, ThrottledError, is_a, is_code

__all__ = [
    "MESSAGE_CHARACTERS",
    "TERMINAL",
    "THROTTLED",
    "TRACEBACK_CHARACTERS",
    "UNKNOWN",
    "Reported",
    "error_class",
    "failure_of",
    "least_wait_s",
    "storable",
]

MESSAGE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 8_000
_FRAMES = 25
_NAME_CHARACTERS = 100
# A cut must not leave the first half of a secret behind, so masking sees this many times what is kept.
_MASKED_FACTOR = 4
# NUL and lone surrogates can't be stored; the other controls but tab and newline could drive a terminal.
_UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NO_CODE = re.compile(r"[^A-Za-z0-9_.-]")
_NO_LETTERS = "0123456789_.-"
_CLASSES = ((TerminalError, "terminal"), (ThrottledError, "throttled"), (RetryableError, "retryable"))
_DEFAULT_CODES = {name: kind.default_code for kind, name in _CLASSES}
UNKNOWN = "unknown"
TERMINAL = "terminal"
THROTTLED = "throttled"


class Reported(Exception):  # noqa: N818 - it reports an error, which happened elsewhere
    """A failure that has its storable form already: it happened in another process.

    `least_wait_s` is what a throttled dependency asked for.
    """

    def __init__(self, failure: Failure, least_wait_s: float = 0.0) -> None:
        super().__init__(failure.code)
        self.failure = failure
        self.least_wait_s = least_wait_s


def failure_of(error: BaseException, meaning: BaseException | None = None) -> Failure:
    """Return the storable form of an exception. `meaning` is the error that it counts as, if it is another one."""
    if is_a(error, Reported):
        return error.failure
    meant = error if meaning is None else meaning
    found = error_class(meant)
    code = _class_code(meant) if found == UNKNOWN else _code(meant, _DEFAULT_CODES[found])
    message = _message(meant)
    if meant is not error:
        message = message or storable(named(_type_name(error), _message(error)), MESSAGE_CHARACTERS)
    return Failure(found, code, message, _traceback(error))


def error_class(error: BaseException) -> str:
    """Return how an error is treated."""
    found = next((name for kind, name in _CLASSES if issubclass(type(error), kind)), UNKNOWN)
    patient = issubclass(type(error), PatientError) and _wanted_wait(error) is not None
    return THROTTLED if patient and found != TERMINAL else found


def least_wait_s(error: BaseException) -> float:
    """Return the wait that a throttled dependency asks for, in seconds; else 0."""
    if is_a(error, Reported):
        return error.least_wait_s
    wanted = _wanted_wait(error) if issubclass(type(error), ThrottledError | PatientError) else None
    return 0.0 if wanted is None else max(timedelta.total_seconds(wanted), 0.0)  # a subclass may have ideas of its own


def _wanted_wait(error: BaseException) -> timedelta | None:
    wanted = _guarded(lambda: getattr(error, "retry_after", None), None)
    return wanted if isinstance(wanted, timedelta) else None


def _code(error: BaseException, otherwise: str) -> str:
    """Return the error's own code if it is one: a subclass may have skipped our `__init__`, or set anything."""
    codes = (
        _guarded(lambda: getattr(error, "code", None), None),
        _guarded(lambda: getattr(type(error), "default_code", None), None),
    )
    return next((code for code in codes if isinstance(code, str) and is_code(code)), otherwise)


def _type_name(error: BaseException, limit: int = _NAME_CHARACTERS) -> str:
    return storable(_guarded(lambda: type(error).__qualname__, None) or "Exception", limit)


def _class_code(error: BaseException) -> str:
    """Return a class's name as a code: without the functions that it was defined in, and in the characters of codes."""
    name = _type_name(error, MESSAGE_CHARACTERS).rpartition("<locals>.")[2]
    name = _NO_CODE.sub("_", name).lstrip(_NO_LETTERS)[:_NAME_CHARACTERS]
    return name if is_code(name) else "Exception"


def _message(error: BaseException) -> str:
    try:
        return storable(str(error), MESSAGE_CHARACTERS)
    except BaseException as inner:  # noqa: BLE001 - user code; even SystemExit must not leave here
        return f"<{_type_name(error)} whose text can't be read: {_type_name(inner)}>"


def _traceback(error: BaseException) -> str | None:
    try:
        summary = traceback.extract_tb(error.__traceback__, limit=-_FRAMES)
        lines = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in summary]
        # As Python shows it: the cause, or else what was being handled, unless that was set aside on purpose.
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is not None:
            lines.append(f"raised from {_type_name(before)}")
        return storable("\n".join(lines), TRACEBACK_CHARACTERS) or None
    except BaseException:  # noqa: BLE001 - user code behind attributes
        return None


def _guarded(read: Callable[[], object], otherwise: object) -> object:
    try:
        return read()
    except BaseException:  # noqa: BLE001 - user code behind a property
        return otherwise


def storable(text: object, limit: int) -> str:
    """Return a text as it may be stored: bounded, masked, and without what PostgreSQL or a terminal can't bear."""
    # `str.__getitem__` and its like: a subclass of str may have ideas of its own.
    plain = str.__str__(text) if isinstance(text, str) else ""
    size = len(plain)
    # A character more tells that it was cut.
    clean = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", plain[: _MASKED_FACTOR * limit + 1])
    kept = masked_start(clean, _MASKED_FACTOR * limit)
    return kept if size <= limit and len(kept) <= limit else f"{kept[:limit]}… ({size} characters)"
