"""The JSON that is stored, with the contents of pydantic's secret types, which its own JSON masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from outbox_schemas.sensitive import SECRETS

__all__ = ["holds_secret", "revealed", "with_secrets"]

_SEQUENCES = (list, tuple, set, frozenset)


def holds_secret(value: Any) -> bool:
    """Tell whether a dumped model holds a value of a secret type."""
    if isinstance(value, SECRETS):
        return True
    if isinstance(value, Mapping):
        return any(holds_secret(item) for item in value.values())
    return isinstance(value, _SEQUENCES) and any(holds_secret(item) for item in value)


def revealed(value: Any) -> Any:
    """Return a dumped model with the contents of its secrets in their places, for a look at these."""
    if isinstance(value, SECRETS):
        return revealed(value.get_secret_value())
    if isinstance(value, Mapping):
        return {key: revealed(item) for key, item in value.items()}
    return [revealed(item) for item in value] if isinstance(value, _SEQUENCES) else value


def with_secrets(document: Any, dumped: Any) -> Any:
    """Return a model's JSON document with the secrets of the same model's Python form (`dumped`) in their places.

    Where the two differ in their build (a serializer of the class's own), the document stays as it is; reading it back
    then shows what has changed.
    """
    if isinstance(dumped, SECRETS):
        return to_jsonable_python(dumped.get_secret_value(), bytes_mode="base64")
    if isinstance(dumped, Mapping) and isinstance(document, dict) and len(dumped) == len(document):
        inner = dumped.values()
        return {key: with_secrets(item, own) for (key, item), own in zip(document.items(), inner, strict=True)}
    if isinstance(dumped, _SEQUENCES) and isinstance(document, list) and len(dumped) == len(document):
        return [with_secrets(item, own) for item, own in zip(document, dumped, strict=True)]
    return document
