"""Values of types that nobody expects, for whatever takes arguments."""

from __future__ import annotations

__all__ = ["STRANGE", "Strange"]


class Strange:
    """Of no type that anybody expects."""

    __hash__ = None  # type: ignore[assignment]  # nor a key of any mapping


STRANGE: tuple[object, ...] = (Strange(), {"a": 1}, [Strange()], 1.5j)
