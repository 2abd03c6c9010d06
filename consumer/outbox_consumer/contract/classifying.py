"""From whatever a handler raised to what it means: ours as it is, else what the handler's `classify` says of it, else
what the ready map knows, else unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from uuid import UUID

from outbox.logs import RateLimited
from outbox_consumer.basis.copies import end_copy
from outbox_consumer.basis.errors import RetryableError, TerminalError, is_a
from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.failing.failures import TERMINAL, THROTTLED, UNKNOWN, Reported, error_class, least_wait_s
from outbox_consumer.failing.known_errors import Meaning, known_error
from outbox_schemas import LeaseLost

__all__ = ["loss_in", "meaning_of"]

_quiet = RateLimited(logging.getLogger("outbox.consumer"), every_s=10)
_OURS = (RetryableError, TerminalError)
# What another process has reported was classified there, where the exception was.
_SETTLED = (*_OURS, Reported)
# What of a group counts for the whole, first to last: whatever no further try can cure, then what nobody foresaw.
_ORDER = {TERMINAL: 0, UNKNOWN: 1, THROTTLED: 2}
_LEAVES = 100


def meaning_of(handler: AnyHandler, error: BaseException, *, sealed: bool = False) -> BaseException:
    """Return one of our errors that says how to treat `error`, which may be that very one; or `error` itself where
    nobody knows. Never raises: what goes wrong in `classify` is logged and leaves the failure unknown. For a `sealed`
    job the traceback is left out: it may quote the error.

    A group that `classify` leaves, as `asyncio.TaskGroup` raises it, means the worst that is in it: terminal, then
    unknown, then throttled (the longest wait), then retryable.
    """
    if is_a(error, _SETTLED):
        return error
    meaning = _meaning_of_one(handler, error, sealed=sealed) if is_a(error, Exception) else error
    if meaning is not error or not is_a(error, BaseExceptionGroup):
        return meaning
    meanings = [_meaning_of_one(handler, leaf, sealed=sealed) for leaf in _leaves(error)]
    return min(meanings, key=_badness, default=error)


def loss_in(error: BaseException, job_id: UUID) -> LeaseLost | None:
    """Return what tells of the loss of a job's lease: the error itself, or one in a group; else None."""
    found = (leaf for leaf in _leaves(error) if is_a(leaf, LeaseLost) and leaf.job_id == job_id)
    return next(found, None)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, and of the groups in it; of another error itself. Some of very many."""
    waiting, seen = [error], 0
    while waiting and seen < _LEAVES:
        seen += 1
        found = waiting.pop()
        if is_a(found, BaseExceptionGroup):
            # Past whatever a subclass has put in its place.
            waiting += reversed(BaseExceptionGroup.exceptions.__get__(found))
        else:
            yield found


def _badness(meaning: BaseException) -> tuple[int, float]:
    return _ORDER.get(error_class(meaning), len(_ORDER)), -least_wait_s(meaning)


def _asked(handler: AnyHandler, error: Exception) -> Meaning | None:
    try:
        return handler.classify(error)
    finally:
        end_copy()


def _meaning_of_one(handler: AnyHandler, error: BaseException, *, sealed: bool) -> BaseException:
    if is_a(error, _SETTLED) or not is_a(error, Exception):
        return error
    try:
        found: Meaning | None = _asked(handler, error) or known_error(error)
    except BaseException as inner:  # noqa: BLE001 - user code, or attributes of a user's exception
        what = f"{type(handler).__qualname__}.classify failed"
        _quiet.log(
            logging.ERROR, "an error could not be classified", key=what, what=what, exc_info=None if sealed else inner
        )
        return error
    if found is None or issubclass(type(found), _OURS):
        return error if found is None else found
    what = f"{type(handler).__qualname__}.classify returned a {type(found).__name__}"
    _quiet.log(logging.ERROR, "an error could not be classified", key=what, what=what)
    return error
