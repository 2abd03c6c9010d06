"""From a plain value to the JSON text that is stored, and to the very value that will be read back."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from outbox_schemas.errors import PayloadError
from outbox_schemas.exactness import as_stored, check_exact

__all__ = ["document_text", "read_back"]


def document_text(value: Any, path: str, max_bytes: int) -> str:
    """Return the JSON text of a value, within a size.

    Args:
        value: what JSON knows (a tuple counts as a list), or a pydantic model.
        path: what the caller's user calls it, for the error.
        max_bytes: the limit on the text.

    Raises:
        PayloadError: JSON or PostgreSQL can't give it back exactly, or it is too large. The value is not quoted.
    """
    text = _model_text(value, path) if isinstance(value, BaseModel) else _plain_text(value, path)
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        raise PayloadError(path, f"has {size} bytes as JSON; {max_bytes} are allowed: keep a reference instead")
    return text


def read_back(text: str) -> Any:
    """Return the value that a stored text comes back as."""
    return json.loads(as_stored(text))


def _model_text(value: BaseModel, path: str) -> str:
    try:
        check_exact(value.model_dump(mode="python", round_trip=True, by_alias=True, warnings="error"), path)
        return value.model_dump_json(round_trip=True, by_alias=True, warnings="error")
    except (PydanticSerializationError, ValueError, RecursionError, TypeError) as error:
        raise PayloadError(path, f"can't be written as JSON ({type(error).__name__}); use plain field types") from None


def _plain_text(value: Any, path: str) -> str:
    check_exact(value, path)
    _check_keys(value, path)
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError, TypeError) as error:
        # The library's message may quote the value.
        raise PayloadError(
            path, f"can't be written as JSON ({type(error).__name__}); use text, numbers, lists and mappings"
        ) from None


def _check_keys(value: Any, path: str) -> None:
    """Refuse keys that JSON would silently turn into text."""
    stack = [(path, value)]
    while stack:
        here, item = stack.pop()
        if isinstance(item, dict):
            for key, child in item.items():
                if not isinstance(key, str):
                    raise PayloadError(here, f"has a key of type {type(key).__name__}; JSON keys are text")
                stack.append((f"{here}.{key}", child))
        elif isinstance(item, list | tuple):
            stack.extend((f"{here}[{index}]", child) for index, child in enumerate(item))
