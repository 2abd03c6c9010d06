"""What a handler may not return: something that would have to be awaited or iterated before anything has run. Taken for
a result, it would end the job in success with its work undone.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from outbox_consumer.basis.errors import TerminalError, is_a

__all__ = ["is_awaitable", "is_lazy", "refuse_unfinished"]

# What nearly all handlers return: told at small cost.
_PLAIN = (type(None), str, int, dict, list, tuple)


def is_lazy(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function runs none of its body. Pure."""
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def is_awaitable(value: object) -> bool:
    """Tell whether a value would have to be awaited, as `inspect.isawaitable` does, by its own class alone."""
    if is_a(value, GeneratorType):
        return bool(value.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE)
    return issubclass(type(value), Awaitable)


def refuse_unfinished(value: Any, what: str, *, instead: str, may_iterate: bool = False) -> Any:
    """Return what a handler's function has returned.

    Args:
        value: that.
        what: the function's name, for the message.
        instead: what to do with something that has to be awaited, for the message.
        may_iterate: whether somebody is given the value who may iterate it.

    Raises:
        TerminalError: it would have to be awaited, or iterated by nobody: its work has not run.
    """
    if type(value) in _PLAIN:
        return value
    if is_awaitable(value):
        if is_a(value, CoroutineType):
            value.close()  # or Python would complain that nobody has awaited it
        problem = f"which nobody awaits, so it has not run; {instead}"
    elif is_a(value, AsyncGeneratorType) or (is_a(value, GeneratorType) and not may_iterate):
        problem = "which nobody iterates, so it has not run; return a list, or nothing"
    else:
        return value
    raise TerminalError(f"{what} returned a {type(value).__name__}, {problem}", code="handler_misdeclared")
