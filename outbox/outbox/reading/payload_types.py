"""Payload classes by kind and version, found in modules that an operator names: never by anything stored in a job."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from outbox.texts.masking import named
from outbox_schemas import HandlerError, OutboxError, Payload

__all__ = ["PayloadTypes", "imported_module", "links_of", "load_payload_types", "type_for"]

PayloadTypes = Mapping[tuple[str, int], type[Payload]]

_MOST_LINKS = 20


def load_payload_types(modules: Iterable[str]) -> PayloadTypes:
    """Import modules and return the payload classes that they define, import, or name in their handlers.

    The working directory is importable, as for `python -m`.

    Raises:
        HandlerError: a module can't be imported or has no such class, or two classes claim the same kind and version.
    """
    found: dict[tuple[str, int], type[Payload]] = {}
    for name in modules:
        payloads = _payloads(imported_module(name.partition(":")[0]))
        if not payloads:
            raise HandlerError(f"module {name!r} has no payload class with a kind, nor a handler of one")
        for payload in payloads:
            other = found.setdefault((payload.kind, payload.version), payload)
            if other is not payload:
                raise HandlerError(
                    f"{payload.__qualname__} and {other.__qualname__} are both kind {payload.kind!r} version "
                    f"{payload.version}; name a module that has one of them"
                )
    return found


def type_for(kind: str, version: int, types: Iterable[type[Payload]]) -> type[Payload] | None:
    """Return the class of a stored payload's own version, or the newest that lifts it."""
    own = [payload for payload in types if payload.kind == kind and version in payload.readable_versions()]
    return max(own, key=lambda payload: (payload.version == version, payload.version), default=None)


def links_of(payload: Payload) -> dict[str, str]:
    """Return the links that a payload's class gives, as far as they are texts. Never raises: the code is the user's."""
    give = getattr(payload, "links", None)
    try:
        given = dict(give()) if callable(give) else {}
    except Exception as error:  # noqa: BLE001 - a faulty link must not hide the dead letter
        return {"links() failed": type(error).__name__}
    texts = {name: link for name, link in given.items() if isinstance(name, str) and isinstance(link, str)}
    return dict(list(texts.items())[:_MOST_LINKS])


def imported_module(module_name: str) -> ModuleType:
    """Import a module that an operator has named; the working directory is importable. Raises `HandlerError`, which
    says what to do.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except OutboxError:
        raise
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and not f"{module_name}.".startswith(f"{missing}."):
            raise HandlerError(f"{module_name!r} imports {missing!r}, which can't be found; install it here") from error
        raise HandlerError(
            f"can't import {module_name!r}: {error}; run where it is importable, or set PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # a script's own exit must not look like that of the command
        raise HandlerError(f"importing {module_name!r} failed: {named(type(error).__name__, error)}") from error


def _payloads(module: ModuleType) -> list[type[Payload]]:
    values = [getattr(value, "payload_type", value) for value in vars(module).values() if isinstance(value, type)]
    return [
        value
        for value in dict.fromkeys(values)
        if isinstance(value, type) and issubclass(value, Payload) and hasattr(value, "kind")
    ]
