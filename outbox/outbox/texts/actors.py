"""Who asks for a change, and why: what is checked before an audit row holds it. Pure."""

from __future__ import annotations

from outbox_schemas import NameRefused

__all__ = ["check_actor"]

_ACTOR_CHARACTERS = 200
_REASON_CHARACTERS = 2000


def check_actor(by: str, reason: str, **more: str) -> None:
    """Raise `NameRefused` unless who, why, and whatever else a person tells are printable texts within their bounds."""
    _check("by", by, _ACTOR_CHARACTERS)
    for field, text in {"reason": reason, **more}.items():
        _check(field, text, _REASON_CHARACTERS)


def _check(field: str, value: str, limit: int) -> None:
    if not isinstance(value, str):
        raise NameRefused(field, f"must be text, not {type(value).__name__}")
    if not 1 <= len(value) <= limit:
        raise NameRefused(field, f"has {len(value)} characters; 1 to {limit} are allowed")
    bad = next((place for place, one in enumerate(value) if not one.isprintable()), None)
    if bad is not None:
        raise NameRefused(
            field, f"has the unprintable character U+{ord(value[bad]):04X} at position {bad}; use printable text"
        )
