"""What JSON and PostgreSQL's jsonb both hold exactly, and the digest that tells two arguments apart.

Refused, with the path of the field: non-finite and negative-zero floats, integers that some Python would refuse to
read back, NUL and lone surrogates, naive datetimes, keys that are not text, and nesting that a parser could choke on.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json

from outbox_schemas.errors import PayloadError
from outbox_schemas.names import nature_of

__all__ = ["MAX_DEPTH", "MAX_INT_DIGITS", "as_stored", "check_exact", "digest", "is_plainly_exact", "text_digest"]

MAX_DEPTH = 64
# The lowest value that sys.set_int_max_str_digits accepts: within it, no configuration of Python refuses the number.
MAX_INT_DIGITS = 640
_INT_LIMIT = 10**MAX_INT_DIGITS
_EXPONENT = re.compile(r"\d[eE][+-]?\d")
# One step of a JSON text: a whole string, or the beginning of an exponent, which alone makes a group.
_STRING_OR_EXPONENT = re.compile(r'"(?:[^"\\]|\\.)*"|(\d[eE])')
_BAD_TEXT = re.compile("[\x00\ud800-\udfff]")
_UNREMARKABLE = frozenset({str, bool, type(None), UUID, date, Decimal})
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def check_exact(value: Any, path: str = "payload") -> None:
    """Raise `PayloadError`, naming the path, for the first value that would not come back as it went in.

    The walk keeps its own stack, so depth costs no recursion; a container that holds itself meets the depth limit.
    """
    stack: list[tuple[str, Any, int]] = [(path, value, 0)]
    while stack:
        here, item, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise PayloadError(here, f"is nested more than {MAX_DEPTH} levels deep; flatten it or store it elsewhere")
        problem = _problem(item)
        if problem:
            raise PayloadError(here, problem)
        stack.extend((below, child, depth + 1) for below, child in _children(here, item))


def is_plainly_exact(value: Any, room: int = MAX_DEPTH) -> bool:
    """Tell at small cost that `check_exact` has nothing to say about a value, but for the NUL and the surrogates of its
    texts: a JSON writer escapes the one and refuses the others. False only means that nobody knows yet.
    """
    kind = type(value)
    if kind in _UNREMARKABLE:
        return True
    if kind is int:
        return -_INT_LIMIT < value < _INT_LIMIT  # type: ignore[no-any-return]
    if kind is float:
        return _float_problem(value) is None
    children = _plain_children(value)
    if children is None or room == 0:
        return False
    for child in children:  # noqa: SIM110 - a generator would double the cost of small values
        if type(child) not in _UNREMARKABLE and not is_plainly_exact(child, room - 1):
            return False
    return True


def _plain_children(value: Any) -> Iterable[Any] | None:
    kind = type(value)
    if kind is dict:
        return value.values()  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        return value  # type: ignore[no-any-return]
    if isinstance(value, BaseModel) and not value.__pydantic_extra__:
        return value.__dict__.values()
    return None


def digest(document: Any) -> bytes:
    """Return the SHA-256 of a JSON document's canonical form.

    Key order does not matter and neither does 1 against 1.0; everything else does, Unicode composition included.
    Raises `PayloadError` for what JSON can't hold.
    """
    try:
        text = _canonical(_plain(document))
    except (TypeError, RecursionError):
        raise PayloadError(
            "document", f"must be what JSON holds; {nature_of(document)} is not, or not all of it"
        ) from None
    return hashlib.sha256(text.encode()).digest()


def text_digest(version: int, text: str) -> bytes:
    """Return `digest([version, document])` of the document that a compact JSON text holds."""
    document = from_json(text)
    if "." in text or _EXPONENT.search(text):
        document = _plain(document)
    elif _is_canonical(text, document):
        return hashlib.sha256(f"[{version},{text}]".encode()).digest()
    return hashlib.sha256(_canonical([version, document]).encode()).digest()


def as_stored(text: str) -> str:
    """Return a JSON text with its numbers as jsonb gives them back: without exponents, 1e23 as a whole number."""
    if not _EXPONENT.search(text) or not any(found[1] for found in _STRING_OR_EXPONENT.finditer(text)):
        return text
    return json.dumps(json.loads(text, parse_float=_without_exponent))


def _is_canonical(text: str, document: Any) -> bool:
    """Tell at small cost that a compact text without floats is the canonical one already: flat, sorted, unescaped."""
    return (
        isinstance(document, dict)
        and text.count("{") == 1
        and text.isascii()
        and text.isprintable()
        and "\\" not in text
        and [*document] == sorted(document)
    )


def _without_exponent(number: str) -> int | float:
    exponent = Decimal(number).as_tuple().exponent
    return int(Decimal(number)) if isinstance(exponent, int) and exponent >= 0 else float(number)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _problem(item: Any) -> str | None:
    if isinstance(item, str):
        return _text_problem(item)
    if isinstance(item, float):
        return _float_problem(item)
    if isinstance(item, int) and not -_INT_LIMIT < item < _INT_LIMIT:
        return f"is an integer of more than {MAX_INT_DIGITS} digits; send it as text"
    if isinstance(item, datetime) and item.utcoffset() is None:
        return "is a naive datetime; give it a time zone, for example datetime.now(UTC)"
    return None


def _float_problem(item: float) -> str | None:
    if not math.isfinite(item):
        return "is not a finite number, which JSON can't hold; leave it out or send text"
    if item == 0 and math.copysign(1, item) < 0:
        return "is negative zero, which PostgreSQL can't hold; send 0.0"
    return None


def _text_problem(item: str) -> str | None:
    found = _BAD_TEXT.search(item)
    if found is None:
        return None
    what = "a NUL character" if found.group() == "\x00" else "a lone surrogate"
    return f"holds {what} at position {found.start()}, which PostgreSQL can't hold; remove it or send base64"


def _children(path: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Mapping):
        for key, child in item.items():
            if isinstance(key, str) and _text_problem(key):
                raise PayloadError(path, f"has a key that {_text_problem(key)}")
            yield f"{path}.{key}", child
    elif isinstance(item, list | tuple | set | frozenset):
        for index, child in enumerate(item):
            yield f"{path}[{index}]", child
