"""Older payloads lifted to what their class is today, one version at a time."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from pydantic_core import from_json, to_json

from outbox_schemas.errors import HandlerError, LeaseLost, UpgradeFailed

__all__ = ["Upgrade", "check_upgrades", "lift"]

# About the attempt, its process, or a person at the terminal.
_ABOUT_ELSE = (LeaseLost, MemoryError, KeyboardInterrupt)

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the document of one version and returns that of the next."""


def check_upgrades(name: str, version: int, upgrades: object) -> None:
    """Raise `HandlerError` unless `upgrades` leads from its lowest version to `version` without a gap."""
    if not isinstance(upgrades, Mapping):
        raise HandlerError(f"{name}.upgrades must be a dict of functions by version, as {{1: from_1_to_2}}")
    if not all(isinstance(key, int) and not isinstance(key, bool) and key >= 1 for key in upgrades):
        raise HandlerError(f"{name}.upgrades must have whole numbers from 1 as its keys")
    for key in sorted(upgrades):
        if not callable(upgrades[key]):
            raise HandlerError(f"{name}.upgrades[{key}] must be a function from a dict to a dict")
    wanted = range(min(upgrades, default=version), version)
    missing = [key for key in wanted if key not in upgrades]
    if missing:
        raise HandlerError(
            f"{name}.upgrades has a gap: version {missing[0]} can't be lifted to {version}; add upgrades[{missing[0]}]"
        )
    if max(upgrades, default=0) >= version:
        raise HandlerError(f"{name}.upgrades[{max(upgrades)}] leads beyond {name}.version, which is {version}")


def lift(text: str, version: int, target: int, upgrades: Mapping[int, Upgrade]) -> str:
    """Return the JSON text of a payload of `version` as its class's version `target` reads it.

    Raises:
        ValueError: the text is no JSON.
        UpgradeFailed: a function of the class raised (`SystemExit` included), or returned no dict that JSON can hold.
        LeaseLost, MemoryError, KeyboardInterrupt: met in a function of the class.
    """
    document = from_json(text)
    for step in range(version, target):
        try:
            document = upgrades[step](document)
        except _ABOUT_ELSE:
            raise
        except BaseException as error:  # noqa: BLE001 - user code; its message may quote the payload, so only its place is told
            raise UpgradeFailed(step, f"it raised {type(error).__name__} {_place(error)}") from None
        if not isinstance(document, dict):
            raise UpgradeFailed(step, f"it returned {type(document).__name__}, not a dict")
    try:
        return to_json(document, bytes_mode="base64").decode()
    except Exception as error:  # noqa: BLE001 - as above: an object of any kind may be inside
        raise UpgradeFailed(target - 1, f"what it returned can't be written as JSON ({type(error).__name__})") from None


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {PurePath(frame.filename).name}:{frame.lineno} in {frame.name}"
