"""Who can be measured: one module each, in `bench/contenders` and `bench/peers`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from measure.contender import BENCH

Say = Callable[[str], None]


def peers(say: Say, only: frozenset[str] = frozenset()) -> list[Any]:
    """Return the peers' classes that can be loaded, by name; say in a line which can't."""
    found = []
    for path in sorted((BENCH / "peers").glob("[!_]*.py")):
        try:
            module = importlib.import_module(f"peers.{path.stem}")
        except Exception as error:  # noqa: BLE001 - a peer that is not installed is no error of ours
            say(f"not measured: {path.stem}: {type(error).__name__}: {error}")
            continue
        found += [kind for kind in _classes(module) if not only or kind.name in only]
    return found


def _classes(module: Any) -> Iterator[Any]:
    """Yield the module's CONTENDER, or all of CONTENDERS, or else the classes in it that look like one."""
    if hasattr(module, "CONTENDERS"):
        yield from module.CONTENDERS
    elif hasattr(module, "CONTENDER"):
        yield module.CONTENDER
    else:
        for item in vars(module).values():
            if isinstance(item, type) and item.__module__ == module.__name__ and {"name", "can"} <= set(vars(item)):
                yield item


def versions(kind: Any) -> str:
    """Return the versions of a contender's distributions."""
    return ", ".join(f"{name} {_version(name)}" for name in kind.packages)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"
