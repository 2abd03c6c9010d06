"""Values of types that nobody expects, for whatever takes arguments."""

from __future__ import annotations

from typing import Any

__all__ = ["STRANGE", "Strange", "Unbound"]


class Strange:
    """Of no type that anybody expects."""

    __hash__ = None  # type: ignore[assignment]  # nor a key of any mapping


class Unbound:
    """A proxy whose object is gone: what it is can't be asked."""

    @property
    def __class__(self) -> Any:
        raise SystemExit("nothing is bound")

    def __str__(self) -> str:
        raise SystemExit("nothing is bound")


STRANGE: tuple[object, ...] = (Strange(), {"a": 1}, [Strange()], 1.5j)
