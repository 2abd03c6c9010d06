"""A child's log records, on their way to the consumer's own log: its handlers and format apply to them. They are masked
before they go: only the child's thread knows what is sensitive in its payload.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from outbox.texts.masking import masked_line, masked_start, traceback_text
from outbox_consumer.isolation.frames import Kind, json_frame

__all__ = ["Forwarder", "forward_to", "take"]

_TEXT = 4_000
_FACTS = 20
# What every record has; the rest are the event's own facts.
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Forwarder(logging.Handler):
    """Sends each record to the consumer, bounded, as texts and plain facts. What can't be sent is dropped."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        try:
            error = traceback_text(record.exc_info[1]) if record.exc_info and record.exc_info[1] else None
            self._send(
                json_frame(
                    Kind.LOG,
                    name=record.name[:_TEXT],
                    level=record.levelno,
                    message=masked_line(record.getMessage(), _TEXT),
                    facts=_facts(record),
                    error=error,
                )
            )
        except Exception:  # noqa: BLE001 - a record that can't be written must not fail the work that it tells of
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the record: what logging itself would print shows its arguments."""


def forward_to(send: Callable[[bytes], None], level: int) -> None:
    """Have all records of this process from a level on sent to the consumer."""
    logging.basicConfig(level=level, handlers=[Forwarder(send)], force=True)


def take(body: bytes, job_id: str) -> None:
    """Log a child's record here, with its job."""
    fields: Mapping[str, Any] = json.loads(body)
    logger = logging.getLogger(fields["name"])
    if not logger.isEnabledFor(fields["level"]):
        return
    message = fields["message"] if fields["error"] is None else f"{fields['message']}\n{fields['error']}"
    extra = {"job_id": job_id} | {name: value for name, value in fields["facts"].items() if name not in _PLAIN}
    # The message is an argument: it may hold percent signs.
    logger.log(fields["level"], "%s", message, extra=extra)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    found = [(name, value) for name, value in vars(record).items() if name not in _PLAIN][:_FACTS]
    return {name: _fact(value) for name, value in found}


def _fact(value: object) -> bool | float | str | None:
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    shown = masked_start(text, 2 * _TEXT)[:_TEXT]
    # A number may be what nobody may see, too.
    return value if isinstance(value, int | float) and shown == text else shown
