"""Numbers in sentences for people."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, as in `1 job` and `2 jobs`; `many` where the plural isn't `one` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
