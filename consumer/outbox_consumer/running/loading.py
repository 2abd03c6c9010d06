"""Reading a stored payload for its handler. What goes wrong is told without the words of the error: until the payload
is read, nobody knows what is sensitive in it, and a validator's error may quote anything.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError

from outbox.texts.hiding import hidden_of
from outbox_consumer.basis.copies import end_copy
from outbox_consumer.basis.errors import RetryableError, TerminalError, is_a
from outbox_consumer.contract.classifying import meaning_of
from outbox_consumer.contract.sealed import opened_payload
from outbox_consumer.failing.failures import Reported, failure_of, least_wait_s
from outbox_consumer.holding.book import Entry
from outbox_schemas import LeaseLost, Payload, UpgradeFailed
from outbox_schemas.refusals import reasons
from outbox_schemas.sensitive import holds_sensitive

__all__ = ["read_payload"]

_UNREADABLE = "the stored payload can't be read"
# They tell of the data, or of a defect of the class: no further try would read it better.
_ITS_OWN = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError)


def read_payload(entry: Entry) -> Payload:
    """Return an attempt's payload, and note what is sensitive in it.

    Raises:
        TerminalError: it can't be read.
        KeyAwaited: it is sealed under a key that is not known here.
        Reported: reading it failed in a way that may pass, such as a store that is down.
    """
    text = opened_payload(entry.claimed, entry.job, entry.handler.payload_type)
    try:
        payload = _loaded(entry, text)
    except ValidationError as error:
        where = "; ".join(f"{place}: {rule}" for place, rule in reasons(error))
        raise TerminalError(f"{_UNREADABLE}: {where}", code="payload_invalid") from None
    except UpgradeFailed as error:
        raise TerminalError(f"{_UNREADABLE}: {error}", code=error.code) from None
    except (LeaseLost, MemoryError):
        raise  # about the attempt or its process
    except BaseException as error:  # noqa: BLE001 - user code
        raise _without_words(entry, error) from None
    entry.job.hidden = hidden_of(payload)
    return payload


def _loaded(entry: Entry, text: str) -> Payload:
    try:
        loaded: Payload = entry.handler.load(text, entry.claimed.version)
    finally:
        end_copy()
    return loaded


def _without_words(entry: Entry, error: BaseException) -> BaseException:
    """Return what is to be told of an error of `load`. One of ours was raised on purpose: its words stand, unless the
    payload's class marks anything as sensitive.
    """
    if is_a(error, (RetryableError, TerminalError)) and not holds_sensitive(entry.handler.payload_type):
        return error
    told = f"{_UNREADABLE}: {type(error).__name__}"
    # No store that is down ends the process (`SystemExit`): code that would do so does it again in the next try.
    is_defect = is_a(error, _ITS_OWN) or not is_a(error, Exception)
    if is_defect and not is_a(error, OSError):
        return TerminalError(told, code="payload_invalid")
    meaning = meaning_of(entry.handler, error, sealed=True)  # without a traceback in the log, which has words, too
    return Reported(replace(failure_of(error, meaning), message=told), least_wait_s(meaning))
