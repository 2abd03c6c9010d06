"""Whether a handler's methods, and what it gives along with an effect, can be called as the runtime calls them: found
when the class is defined, and before anything is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType

from outbox_schemas import HandlerError

__all__ = ["check_arguments", "check_call"]

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
        problem = _misfit(found.__get__(object(), cls), given)
        if problem is not None:
            raise HandlerError(
                f"{cls.__qualname__}.{name} must take (self, {', '.join(given)}); besides self it takes {problem}"
            )


def check_call(function: Callable[..., object], given: tuple[str, ...]) -> str | None:
    """Return how a function that is to be called with `given` can't be called so, None if it can, or may be able to."""
    problem = _misfit(function, given)
    return None if problem is None else f"must take ({', '.join(given)}); it takes {problem}"


def _misfit(function: Callable[..., object], given: tuple[str, ...]) -> str | None:
    try:
        # What a decorator gives besides is its own affair, so what it wraps is not looked at.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a decorator may have said anything of it
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        return f"{signature}: {error}"
    for name, meant in zip(signature.parameters, given, strict=False):
        if name != meant and name in given:
            return f"{signature}: they come in another order"
    return None
