"""The root of the error tree; `outbox_schemas.errors` shows it whole."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["OutboxError"]


class OutboxError(Exception):
    """Base of every error that this product raises on purpose."""

    code: ClassVar[str] = "outbox_error"
