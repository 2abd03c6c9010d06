"""Watches what is logged while tests run: each record of ours must be in the table of events."""

from __future__ import annotations

import logging

from outbox.telemetry.events import event

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def breach(record: logging.LogRecord) -> str | None:
    """Return what of a record is not as the table of events says; None if all is."""
    try:
        known = event(str(record.msg))
    except KeyError:
        return f"no such event: {record.msg!r}"
    if record.levelname.lower() not in known.levels:
        return f"{known.text!r} has no level {record.levelname}"
    if record.name != known.logger and not record.name.startswith(f"{known.logger}."):
        return f"{known.text!r} is not logged by {record.name}"
    strange = [name for name in vars(record) if name not in _PLAIN and not known.allows(name)]
    return f"{known.text!r} has no fields {strange}" if strange else None


class Watch(logging.Handler):
    """Keeps what a record of a process of ours has said that the table does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.breaches: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a record. Handlers' own, forwarded from their processes, are texts of theirs."""
        found = None if record.msg == "%s" or record.name.startswith("outbox.test") else breach(record)
        if found is not None:
            self.breaches.append(found)
