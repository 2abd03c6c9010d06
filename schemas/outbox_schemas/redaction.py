"""A payload as people may see it: with `***` for what is sensitive where its class is known, else only its shape."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel, RootModel
from pydantic_core import from_json, to_jsonable_python

from outbox_schemas.errors import NameRefused
from outbox_schemas.names import nature_of
from outbox_schemas.sensitive import SECRETS, elements, fields_of, is_hidden, pairs

__all__ = ["MASK", "hidden_texts", "redacted", "shape"]

MASK = "***"

# Shorter ones stand in too many innocent words.
SHORTEST_HIDDEN = 4
MOST_HIDDEN = 1_000
_SHAPE_DEPTH = 8
_SHAPE_KEYS = 100
_SHAPE_ITEMS = 20
# What looks like a field's name. Any other key may itself be data.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

Hide = Callable[[Any], Any]


def redacted(payload: BaseModel) -> dict[str, Any]:
    """Return a payload as JSON can hold it, under the names of its stored form, with every sensitive value masked.

    Raises `NameRefused` for what is no pydantic model: `shape` tells of anything.
    """
    if not isinstance(payload, BaseModel):
        raise NameRefused("payload", f"must be a pydantic model, not {nature_of(payload)}; shape() takes anything")
    shown = _model(payload, lambda _value: MASK)
    return shown if isinstance(shown, dict) else {"root": shown}


def hidden_texts(payload: BaseModel) -> list[str]:
    """Return the texts of a payload's sensitive values, of at least 4 characters each, to mask what quotes them.

    Numbers, dates and the like come as Python and as JSON write them. At most 1,000.
    """
    found: dict[str, None] = {}

    def collect(value: Any) -> str:
        for text in _texts(value):
            if len(text) >= SHORTEST_HIDDEN and len(found) < MOST_HIDDEN:
                found[text] = None
        return MASK

    _model(payload, collect)
    return list(found)


def shape(document: Any) -> Any:
    """Return the keys and types of a JSON document (or of its text), and none of its values.

    Safe for what nothing is known of: a key that doesn't look like a name is left out, too.
    """
    if isinstance(document, str | bytes):
        try:
            document = from_json(document)
        except ValueError:
            return "unreadable"
    return _shape(document, 0)


def _model(value: BaseModel, hide: Hide) -> Any:
    shown = {
        field.stored: hide(item) if field.marked else _value(item, field.annotation, hide)
        for name, field in fields_of(type(value)).items()
        for item in [value.__dict__.get(name)]
    }
    if isinstance(value, RootModel):
        return shown.get("root")
    # Nothing declares what the extra ones are.
    return shown | {name: hide(extra) for name, extra in (value.__pydantic_extra__ or {}).items()}


def _value(value: Any, annotation: Any, hide: Hide) -> Any:
    if value is None:
        return None
    if isinstance(value, SECRETS) or is_hidden(annotation) or is_hidden(type(value)):
        return hide(value)
    if isinstance(value, BaseModel):
        return _model(value, hide)
    if isinstance(value, Mapping):
        return _mapping(value, annotation, hide)
    if isinstance(value, list | tuple | set | frozenset):
        kinds = elements(annotation, len(value))
        return [_value(item, kind, hide) for item, kind in zip(value, kinds, strict=True)]
    return _plain(value)


def _mapping(value: Mapping[Any, Any], annotation: Any, hide: Hide) -> Any:
    key_kind, value_kind = pairs(annotation)
    if is_hidden(key_kind):
        return hide(value)
    return {str(_plain(key)): _value(item, value_kind, hide) for key, item in value.items()}


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, bytes_mode="base64", fallback=lambda item: f"<{type(item).__name__}>")


def _texts(value: Any) -> Iterator[str]:
    """Return how Python and JSON write the values inside a sensitive one."""
    inner = _inner(value)
    if inner is not None:
        for item in inner:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
        yield from value.splitlines()  # a log shows a key file line by line
    elif isinstance(value, bytes):
        yield from (value.decode(errors="replace"), base64.b64encode(value).decode(), repr(value)[2:-1])
    elif value is not None and not isinstance(value, bool):
        plain = _plain(value)
        yield from (str(value), plain if isinstance(plain, str) else json.dumps(plain))


def _inner(value: Any) -> Iterable[Any] | None:
    """Return the values that one holds; None for one that stands for itself."""
    if isinstance(value, SECRETS):
        return [value.get_secret_value()]
    if isinstance(value, BaseModel):
        return dict(value).values()
    if isinstance(value, Enum):
        return [value.value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return [item for pair in value.items() for item in pair]
    return value if isinstance(value, list | tuple | set | frozenset) else None


def _shape(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return _keys(value, depth) if depth < _SHAPE_DEPTH else "object"
    if isinstance(value, list):
        if depth >= _SHAPE_DEPTH:
            return "list"
        kinds = [_shape(item, depth + 1) for item in value[:_SHAPE_ITEMS]]
        return [kind for number, kind in enumerate(kinds) if kind not in kinds[:number]]
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def _keys(value: dict[str, Any], depth: int) -> dict[str, Any]:
    named = {key: item for key, item in value.items() if _NAME.fullmatch(key)}
    shown = {key: _shape(named[key], depth + 1) for key in list(named)[:_SHAPE_KEYS]}
    left_out = len(value) - len(shown)
    return shown | {"…": f"{left_out} more"} if left_out else shown
