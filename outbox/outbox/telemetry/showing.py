"""What a process shows at its port: its health and its figures, by path."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from outbox.settings.telemetry import TelemetrySettings
from outbox.telemetry.exposition import CONTENT_TYPE, exposition
from outbox.telemetry.health import Verdict, health_reply
from outbox.telemetry.port import Port
from outbox.telemetry.request import Reply
from outbox.telemetry.series import Figures

__all__ = ["Showing", "open_port"]

METRICS_PATH = "/metrics"


class Showing:
    """Answers by path: `checks` has a verdict for each path of its own."""

    def __init__(self, figures: Figures, checks: Mapping[str, Callable[[], Verdict]]) -> None:
        self._figures = figures
        self._checks = dict(checks)
        started = time.monotonic()
        figures.read("outbox.process.uptime", lambda: [((), time.monotonic() - started)])
        figures.read("outbox.process.threads", lambda: [((), threading.active_count())])

    def answer(self, path: str) -> Reply:
        """Return the answer to a path."""
        check = self._checks.get(path)
        if check is not None:
            return health_reply(check())
        if path == METRICS_PATH:
            return Reply(HTTPStatus.OK, exposition(self._figures.collect()), CONTENT_TYPE)
        return Reply(HTTPStatus.NOT_FOUND, f"there is {', '.join([*self._checks, METRICS_PATH])}\n")


def open_port(settings: TelemetrySettings, showing: Showing) -> Port | None:
    """Return a port that listens and does not answer yet; None where none is set. Raises `SettingsError` where that
    can't be listened on.
    """
    address = settings.address()
    return None if address is None else Port(address, showing.answer)
