"""Every call in our packages that logs an event, found in their source: with its event, level and facts as far as the
source tells them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas/outbox_schemas", "outbox/outbox", "relay/outbox_relay", "consumer/outbox_consumer")
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}
_NAMES = {"log", "logger", "_quiet", "_limited"}
# What is a parameter of `RateLimited.log` or of a function that hands its event on, and no fact.
_NO_FACT = {"key", "exc_info", "extra"}


@dataclass(frozen=True)
class LogCall:
    """A call. `events` and `levels`: all that it can log; empty where the source alone does not tell. `facts`: those
    that the source names; `open`: others may come, from a mapping.
    """

    where: str
    events: tuple[str, ...]
    levels: tuple[str, ...]
    facts: frozenset[str]
    open: bool


def log_calls() -> list[LogCall]:
    """Return all calls that log, of all four packages."""
    found: list[LogCall] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            found += _Module(path).calls()
    return found


class _Module:
    def __init__(self, path: Path) -> None:
        self.name = str(path.relative_to(ROOT))
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def calls(self) -> Iterator[LogCall]:
        functions = [one for one in ast.walk(self.tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        for function in functions:
            for call in _own_calls(function):
                if _is_log(call):
                    yield from self._found(call, function)

    def _found(self, call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[LogCall]:
        assert isinstance(call.func, ast.Attribute)
        method = call.func.attr
        event = call.args[1] if method == "log" else call.args[0]
        levels = self._texts(call.args[0], function) if method == "log" else (_LIKE.get(method, method),)
        facts, is_open = _facts(call)
        where = f"{self.name}:{call.lineno}"
        parameters = [one.arg for one in function.args.args]
        if isinstance(event, ast.Name) and event.id in parameters:
            # Handed on by a function of this module: the events are those of its callers.
            for caller in ast.walk(self.tree):
                if isinstance(caller, ast.Call) and getattr(caller.func, "attr", None) == function.name:
                    given = {one.arg for one in caller.keywords if one.arg}
                    options = {one.arg for one in function.args.kwonlyargs}
                    yield LogCall(
                        f"{self.name}:{caller.lineno}",
                        self._texts(caller.args[1], function),
                        self._texts(caller.args[0], function),
                        (facts | _assigned_keys(function)) - (options - given) | given,
                        is_open,
                    )
            return
        facts |= _assigned_keys(function) if is_open else frozenset()
        yield LogCall(where, self._texts(event, function), levels, facts, is_open)

    def _texts(self, node: ast.expr, function: ast.AST) -> tuple[str, ...]:
        """Return the texts, or names of levels, that an expression can be, as far as assignments here tell."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return (node.value,)
        if isinstance(node, ast.IfExp):
            return self._texts(node.body, function) + self._texts(node.orelse, function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "logging":
            return (node.attr.lower(),)
        if isinstance(node, ast.Name):
            found = [value for scope in (function, self.tree) for value in _assigned(scope, node.id)]
            return tuple(text for value in found for text in self._texts(value, function))
        return ()


_LIKE = {"exception": "error"}


def _own_calls(function: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of a function, without those of functions inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Call):
            yield node
        waiting += ast.iter_child_nodes(node)


def _is_log(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in LEVELS | {"log"}:
        return False
    owner = call.func.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name in _NAMES or name == "_logger"


def _facts(call: ast.Call) -> tuple[frozenset[str], bool]:
    names: set[str] = set()
    is_open = False
    for keyword in call.keywords:
        if keyword.arg is None:
            is_open = True
        elif keyword.arg == "extra":
            keys = [node for node in ast.walk(keyword.value) if isinstance(node, ast.Dict)]
            names |= {key.value for node in keys for key in node.keys if isinstance(key, ast.Constant)}
            is_open = is_open or not isinstance(keyword.value, ast.Dict)
        elif keyword.arg not in _NO_FACT:
            names.add(keyword.arg)
    return frozenset(names), is_open


def _assigned_keys(function: ast.AST) -> frozenset[str]:
    """Return the constant keys that a function puts into mappings, by literal or by assignment."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            names |= {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    names.add(str(target.slice.value))
    return frozenset(names)


def _assigned(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from (value for one, value in pairs if isinstance(one, ast.Name) and one.id == name)
