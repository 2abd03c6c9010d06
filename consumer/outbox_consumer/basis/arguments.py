"""Whether a handler's methods can be called as the runtime calls them: found when the class is defined."""

from __future__ import annotations

import inspect
from types import FunctionType

from outbox_schemas import HandlerError

__all__ = ["check_arguments"]

_WANTED = {
    "handle": ("job", "payload"),
    "apply": ("session", "job", "result"),
    "classify": ("error",),
    "load": ("text", "version"),
}


def check_arguments(cls: type) -> None:
    """Raise `HandlerError` if a method of a handler class can't take the arguments that it is given, in their order,
    or can't be called at all. What is no plain function (a callable object, say) is left to the call.
    """
    for name, given in _WANTED.items():
        found = inspect.getattr_static(cls, name)
        if not callable(getattr(cls, name)):
            raise HandlerError(
                f"{cls.__qualname__}.{name} must be a method; it is of type {type(getattr(cls, name)).__name__}"
            )
        if not isinstance(found, FunctionType | staticmethod | classmethod):
            continue
        try:
            signature = inspect.signature(found.__get__(object(), cls))
        except (TypeError, ValueError):  # a decorator may have said anything of it
            continue
        try:
            signature.bind(*given)
        except TypeError as error:
            raise HandlerError(
                f"{cls.__qualname__}.{name} must take (self, {', '.join(given)}); it takes {signature}: {error}"
            ) from None
