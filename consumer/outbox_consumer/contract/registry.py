"""Which handlers a consumer runs: found in modules named by the operator, never by anything stored in a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from types import MappingProxyType, ModuleType
from typing import Any, cast

from outbox.leases.leasing import Ability
from outbox.reading.known_names import close_to
from outbox.reading.payload_types import imported_module
from outbox.texts.masking import named
from outbox_consumer.contract.handler import AnyHandler, AsyncHandler, BaseHandler, Handler
from outbox_consumer.contract.terms import abilities_of, check_object
from outbox_schemas import HandlerError, Payload

__all__ = ["Lane", "Registry", "lane_of", "load_handlers"]


class Lane(StrEnum):
    """Where a handler's attempts run."""

    TASK = "task"
    THREAD = "thread"
    PROCESS = "process"


def lane_of(handler: AnyHandler) -> Lane:
    """Return where a handler's attempts run."""
    if isinstance(handler, AsyncHandler):
        return Lane.TASK
    return Lane.PROCESS if handler.isolation == "process" else Lane.THREAD


class Registry:
    """Handlers by kind and version. Immutable."""

    def __init__(self, handlers: Iterable[AnyHandler]) -> None:
        found: dict[tuple[str, int], AnyHandler] = {}
        abilities: list[Ability] = []
        for handler in handlers:
            _check_usable(type(handler))
            check_object(handler)
            for ability in abilities_of(handler):
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
        # By identity: a handler may be a dataclass, whose objects compare by their fields and have no hash.
        return list({id(handler): handler for handler in self._handlers.values()}.values())

    def queues(self) -> list[str]:
        """Return the queues of the handlers' payload types."""
        return sorted({handler.payload_type.queue for handler in self._handlers.values()})

    def check_queues(self, queues: Iterable[str]) -> list[str]:
        """Return those of a consumer's queues that no handler's payload names: jobs there may have been moved.

        Raises `HandlerError` if none is named: the consumer would wait for ever beside its jobs.
        """
        asked, own = set(queues), self.queues()
        if not asked & set(own):
            close = self.like(asked)
            meant = f"; did you mean {' or '.join(close)}?" if close else ""
            raise HandlerError(
                f"the consumer works for {', '.join(sorted(asked)) or 'no queue'}, but its handlers' payloads go to "
                f"{', '.join(own)}; name one of these with --queue or OUTBOX_CONSUMER_QUEUES, or leave it out{meant}"
            )
        return sorted(asked - set(own))

    def like(self, queues: Iterable[str]) -> list[str]:
        """Return those queues of the handlers' payload types that one of these may have been meant to be."""
        own = self.queues()
        return sorted({one for name in queues for one in close_to(name, own)})

    def by_lane(self) -> dict[Lane, list[AnyHandler]]:
        """Return the handlers by where they run; nothing for a lane that has none."""
        found: dict[Lane, list[AnyHandler]] = {}
        for handler in self.handlers():
            found.setdefault(lane_of(handler), []).append(handler)
        return found


def load_handlers(names: Sequence[str]) -> Registry:
    """Import `MODULE` (all handlers defined in it) or `MODULE:NAME` (one) each, and return their registry.

    The working directory is importable, as for `python -m`. A class of the module that can't run jobs is refused,
    unless it is a base: marked `abstract = True` in its own body, or incomplete and either private by its name or
    derived from in the same module.

    Raises:
        HandlerError: a module or name can't be loaded, holds no handler, or two handlers claim the same kind and
        version.
    """
    classes: dict[type[Any], None] = {}
    for name in names:
        for found in _classes(name):
            classes[found] = None
    return Registry([_instance(found) for found in classes])


def _classes(name: str) -> list[type[Any]]:
    module_name, _, attribute = name.partition(":")
    module = imported_module(module_name)
    if attribute:
        return [_named(module, attribute)]
    here = [value for value in vars(module).values() if _is_ours(value) and value.__module__ == module.__name__]
    found = [value for value in dict.fromkeys(here) if not _is_base(value, here)]
    for value in found:
        _check_usable(value)
    if not found:
        raise HandlerError(f"module {module_name!r} defines no Handler or AsyncHandler subclass with a payload type")
    return found


def _named(module: ModuleType, attribute: str) -> type[Any]:
    value = getattr(module, attribute, None)
    if not _is_ours(value):
        raise HandlerError(f"{module.__name__}:{attribute} is not a Handler or AsyncHandler subclass")
    _check_usable(cast("type[Any]", value))
    return cast("type[Any]", value)


def _is_ours(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseHandler)


def _is_base(value: type[Any], here: Sequence[type[Any]]) -> bool:
    """Tell whether a class is only there for others to derive from, and so need not be able to run jobs."""
    if vars(value).get("abstract") is True:
        return True
    if _flaw(value) is None:
        return False
    return value.__name__.startswith("_") or any(other is not value and issubclass(other, value) for other in here)


def _check_usable(found: type[Any]) -> None:
    flaw = _flaw(found)
    if flaw is not None:
        raise HandlerError(f"{found.__qualname__} {flaw}")


def _flaw(found: type[Any]) -> str | None:
    """Return why no jobs can run with a class, or None."""
    if not issubclass(found, Handler | AsyncHandler):
        return "must derive from Handler or AsyncHandler"
    payload = getattr(found, "payload_type", None)
    if payload is None:
        return "names no payload: write class X(Handler[MyPayload]), or `abstract = True` if it is only a base"
    if not (isinstance(payload, type) and issubclass(payload, Payload)):
        return f"names a payload that is no Payload subclass: {getattr(payload, '__name__', payload)!s}"
    if not found.has_handle():
        return "must define handle(), or say `abstract = True` if it is only a base"
    if payload.logical_key is Payload.logical_key:
        return f"takes {payload.__name__}, which must define logical_key()"
    return None


def _instance(found: type[Any]) -> AnyHandler:
    try:
        return cast("AnyHandler", found())
    except Exception as error:
        raise HandlerError(f"{found.__qualname__}() failed: {named(type(error).__name__, error)}") from error
