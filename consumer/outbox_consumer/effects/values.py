"""What `send` and `reconcile` return, and the form in which it is kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from outbox.leases.effects import MAX_REMOTE_ID_CHARACTERS, MAX_RESULT_BYTES, Remote
from outbox.texts.masking import masked_line
from outbox_consumer.basis.errors import is_a
from outbox_schemas import PayloadError
from outbox_schemas.documents import document_text

__all__ = ["NOT_DONE", "EffectResult", "NotDone", "remote_of", "says_not_done", "says_nothing"]

_EMPTY = (type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset)


class NotDone:
    """The one value `NOT_DONE`, by which `reconcile` says that the effect has surely not happened."""

    def __repr__(self) -> str:
        """Return its name."""
        return "NOT_DONE"


NOT_DONE: Final = NotDone()


@dataclass(frozen=True, slots=True)
class EffectResult:
    """A result with the other side's own id for the request, so that people can find it there.

    Attributes:
        value: what `job.effect()` returns: anything that JSON holds exactly, up to 64 KiB.
        remote_id: text of up to 500 characters; what is longer is cut, what is unprintable is left out.
    """

    value: Any
    remote_id: str | None = None


def says_not_done(answer: Any) -> bool:
    """Tell whether an answer is `NOT_DONE`: also one that a process pool has copied, or that stands in a result."""
    return is_a(answer.value if is_a(answer, EffectResult) else answer, NotDone)


def says_nothing(answer: Any) -> bool:
    """Tell whether a reconciler's answer may as well mean that it has found nothing: None, False, 0, or what is empty.
    In an `EffectResult` it is meant.
    """
    return is_a(answer, _EMPTY) and not answer


def remote_of(answer: Any) -> Remote:
    """Return what is kept of an answer. Never raises: an answer that can't be stored is no reason to forget that there
    was one.
    """
    result = answer if is_a(answer, EffectResult) else EffectResult(answer)
    request_id = _remote_id(result.remote_id)
    try:
        return Remote(document_text(result.value, "result", MAX_RESULT_BYTES), request_id=request_id)
    except PayloadError as error:
        return Remote(None, masked_line(str(error), MAX_REMOTE_ID_CHARACTERS), request_id)
    except BaseException as error:  # noqa: BLE001 - a model's own serializers are user code
        return Remote(None, f"result: can't be written as JSON ({type(error).__name__})", request_id)


def _remote_id(value: object) -> str | None:
    if value is None:
        return None
    try:
        return masked_line(str(value), MAX_REMOTE_ID_CHARACTERS) or None
    except BaseException:  # noqa: BLE001 - a client library's object, and its `__str__`
        return None
