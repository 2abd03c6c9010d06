"""Which handlers a consumer runs: found in modules named by the operator, never by anything stored in a job."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast

from outbox.leasing import Ability
from outbox_consumer.handler import AnyHandler, AsyncHandler, Handler
from outbox_schemas import HandlerError

__all__ = ["Registry", "load_handlers"]


class Registry:
    """Handlers by kind and version. Immutable."""

    def __init__(self, handlers: Iterable[AnyHandler]) -> None:
        found: dict[tuple[str, int], AnyHandler] = {}
        abilities: list[Ability] = []
        for handler in handlers:
            if not hasattr(type(handler), "payload_type"):
                raise HandlerError(f"{type(handler).__qualname__} names no payload: write class X(Handler[MyPayload])")
            if not handler.has_handle():
                raise HandlerError(f"{type(handler).__qualname__} must define handle()")
            for ability in handler.abilities():
                other = found.setdefault((ability.kind, ability.version), handler)
                if other is not handler:
                    raise HandlerError(
                        f"{type(handler).__qualname__} and {type(other).__qualname__} both handle "
                        f"kind {ability.kind!r} version {ability.version}; load one of them"
                    )
                abilities.append(ability)
        if not found:
            raise HandlerError("no handlers: name a module that defines Handler or AsyncHandler subclasses")
        self._handlers = MappingProxyType(found)
        self.abilities: Sequence[Ability] = tuple(abilities)

    def find(self, kind: str, version: int) -> AnyHandler:
        """Return the handler of a claimed job; the claim took only what is here."""
        return self._handlers[kind, version]

    def handlers(self) -> list[AnyHandler]:
        """Return each handler once."""
        return list(dict.fromkeys(self._handlers.values()))

    def queues(self) -> list[str]:
        """Return the queues of the handlers' payload types."""
        return sorted({handler.payload_type.queue for handler in self._handlers.values()})

    def any_async(self) -> bool:
        """Tell whether an event loop is needed."""
        return any(isinstance(handler, AsyncHandler) for handler in self._handlers.values())

    def any_sync(self) -> bool:
        """Tell whether handler threads are needed."""
        return any(isinstance(handler, Handler) for handler in self._handlers.values())


def load_handlers(names: Sequence[str]) -> Registry:
    """Import `MODULE` (all handlers defined in it) or `MODULE:NAME` (one) each, and return their registry.

    The working directory is importable, as for `python -m`.

    Raises:
        HandlerError: a module or name can't be loaded, holds no handler, or two handlers claim the same kind and
        version.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    classes: dict[type[Any], None] = {}
    for name in names:
        for found in _classes(name):
            classes[found] = None
    return Registry([_instance(found) for found in classes])


def _classes(name: str) -> list[type[Any]]:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise HandlerError(
            f"can't import {module_name!r}: {error}; run where it is importable, or set PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # a script's own exit must not look like a consumer's
        raise HandlerError(f"importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    if attribute:
        return [_named(module, attribute)]
    found = [value for value in vars(module).values() if _is_complete(value) and value.__module__ == module.__name__]
    if not found:
        raise HandlerError(f"module {module_name!r} defines no Handler or AsyncHandler subclass with a payload type")
    return found


def _named(module: ModuleType, attribute: str) -> type[Any]:
    value = getattr(module, attribute, None)
    if not _is_handler(value):
        raise HandlerError(
            f"{module.__name__}:{attribute} is not a Handler or AsyncHandler subclass with a payload type"
        )
    return cast("type[Any]", value)


def _is_handler(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Handler | AsyncHandler) and hasattr(value, "payload_type")


def _is_complete(value: object) -> bool:
    """Tell whether a class can run jobs; a shared base class in the same module need not."""
    return _is_handler(value) and cast("type[AnyHandler]", value).has_handle()


def _instance(found: type[Any]) -> AnyHandler:
    try:
        return cast("AnyHandler", found())
    except Exception as error:
        raise HandlerError(f"{found.__qualname__}() failed: {type(error).__name__}: {error}") from error
