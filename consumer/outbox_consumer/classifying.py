"""From whatever a handler raised to what it means: ours as it is, else what the handler's `classify` says of it, else
what the ready map knows, else unknown.
"""

from __future__ import annotations

import logging

from outbox.logs import RateLimited
from outbox_consumer.errors import RetryableError, TerminalError
from outbox_consumer.failures import Reported
from outbox_consumer.handler import AnyHandler
from outbox_consumer.known_errors import Meaning, known_error

__all__ = ["meaning_of"]

_quiet = RateLimited(logging.getLogger("outbox.consumer"), every_s=10)
_OURS = (RetryableError, TerminalError)
# What another process has reported was classified there, where the exception was.
_SETTLED = (*_OURS, Reported)


def meaning_of(handler: AnyHandler, error: BaseException, *, sealed: bool = False) -> BaseException:
    """Return one of our errors that says how to treat `error`, which may be that very one; or `error` itself where
    nobody knows. Never raises: what goes wrong in `classify` is logged and leaves the failure unknown. For a `sealed`
    job the traceback is left out: it may quote the error.
    """
    if issubclass(type(error), _SETTLED) or not isinstance(error, Exception):
        return error
    try:
        found: Meaning | None = handler.classify(error) or known_error(error)
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
