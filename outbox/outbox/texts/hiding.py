"""Sensitive values of one payload out of every text that is masked while its job is dealt with: errors, tracebacks and
log lines of the thread or task that deals with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache

from outbox.texts.masking import MASK, Cut, forms, masked_besides, pattern_of, without_cut_ones
from outbox_schemas import Payload
from outbox_schemas.redaction import MOST_HIDDEN, hidden_texts
from outbox_schemas.sensitive import holds_sensitive

__all__ = ["Hidden", "hidden_of", "hiding", "marks"]

_UNREADABLE = "(left out: what is sensitive in the payload can't be told)"
# As stored errors and log lines replace them, before they are masked.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Of a value so long, a part of such a length gives away enough, and stands in no innocent text.
_LONG = 24
_PART = 12
_NOTHING: AbstractContextManager[None] = nullcontext()


class Hidden:
    """The sensitive values of one payload. They are looked for when a text is first masked, which for most jobs is
    never.
    """

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._forms: dict[str, set[str]] | None = None
        self._reading = False

    def masked(self, text: str, cut: Cut = Cut.NOWHERE) -> str:
        """Return a text with `***` for each sensitive value that it holds, in the ways that Python and JSON write it,
        and for the part of one that a cut has left. Who quotes a long value often shortens it, so of one from 24
        characters on its first or last 12 are enough.

        A value of less than 8 characters is replaced only where no letter or digit touches it. Never raises.
        """
        if self._reading:  # a value's own `__str__` logs something
            return _UNREADABLE
        try:
            known = self._known()
            present = [value for value, written in known.items() if any(form in text for form in written)]
            if present:
                text = pattern_of(tuple(present)).sub(MASK, text)
            every = {form for written in known.values() for form in written}
            text = _without_parts(text, every)
            return without_cut_ones(text, every, cut) if cut else text
        except Exception:  # noqa: BLE001 - a value may be of a class of the user's
            return _UNREADABLE

    def _known(self) -> dict[str, set[str]]:
        if self._forms is None:
            self._reading = True
            try:
                values = hidden_texts(self._payload)
            finally:
                self._reading = False
            if len(values) >= MOST_HIDDEN:  # what else there is, nobody knows
                raise ValueError("more sensitive values than are looked for")
            stored = [_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value) for value in values]
            self._forms = {value: forms(value) for value in [*values, *stored]}
        return self._forms


def _without_parts(text: str, written: set[str]) -> str:
    """Return a text without the beginnings and ends of long values, as far as they go on."""
    for form in written:
        if len(form) < _LONG:
            continue
        while (place := text.find(form[:_PART])) != -1:
            text = text[:place] + MASK + text[place + _common(text[place : place + len(form)], form) :]
        while (place := text.rfind(form[-_PART:])) != -1:
            end = place + _PART
            before = text[max(0, end - len(form)) : end]
            text = text[: end - _common(before[::-1], form[::-1])] + MASK + text[end:]
    return text


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginnings."""
    most = min(len(one), len(other))
    return next((place for place in range(most) if one[place] != other[place]), most)


def hidden_of(payload: Payload) -> Hidden | None:
    """Return what is to be hidden of a payload; None where its class marks nothing as sensitive."""
    return Hidden(payload) if marks(type(payload)) else None


@cache
def marks(payload: type[Payload]) -> bool:
    """Tell whether a class marks anything as sensitive, by one look into a dictionary: this is asked for every job."""
    return holds_sensitive(payload)


def hiding(hidden: Hidden | None) -> AbstractContextManager[None]:
    """Mask a payload's sensitive values in whatever this thread or task masks inside the block."""
    return _NOTHING if hidden is None else _hiding(hidden)


@contextmanager
def _hiding(hidden: Hidden) -> Iterator[None]:
    token = masked_besides.set(hidden.masked)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is closed elsewhere; its context is gone
            masked_besides.reset(token)
