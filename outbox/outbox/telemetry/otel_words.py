"""What OpenTelemetry's SDK and its exporters log of themselves, in our words and without theirs.

They log each failed attempt by itself, without limit, and their texts hold addresses and headers: so nothing of it is
logged as it stands. But an exporter that failed says why nowhere else, nor the SDK that it refuses a variable.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import threading
from contextlib import suppress

__all__ = ["SAYS_NO_MORE", "OtelWords", "cause_of", "listen", "words"]

SAYS_NO_MORE = "the exporter says no more"

_FILLED_IN = re.compile(r"%(?:\([^)]*\))?[-#0-9. +*]*[a-zA-Z]")
_MOST_TEXTS = 8
_MOST_CAUSES = 10


class OtelWords(logging.Handler):
    """Keeps, for each thread, what was said there since it was asked last: never a value, but a status or an error's
    class.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._here = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is said."""
        with suppress(Exception):  # whatever was said, it must not fail who said it
            cause = next(filter(None, map(_cause, record.args if isinstance(record.args, tuple) else ())), None)
            if cause is not None:
                self._here.cause = cause
            elif len(texts := self._texts()) < _MOST_TEXTS:
                texts.append(_FILLED_IN.sub("…", str(record.msg)))

    def cause(self) -> str:
        """Return why the export failed that has just ended on this thread, and forget it."""
        texts = self.texts()
        cause: str | None = vars(self._here).pop("cause", None)
        return cause or next(iter(texts), SAYS_NO_MORE)

    def texts(self) -> list[str]:
        """Return what else was said on this thread, without the values, and forget it."""
        texts, self._here.texts = self._texts(), []
        return texts

    def _texts(self) -> list[str]:
        if "texts" not in vars(self._here):
            self._here.texts = []
        found: list[str] = self._here.texts
        return found


words = OtelWords()


def listen() -> None:
    """Take what OpenTelemetry logs from here on, in place of whoever got it."""
    logger = logging.getLogger("opentelemetry")
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    if words not in logger.handlers:
        logger.addHandler(words)


def _cause(value: object) -> str | None:
    if isinstance(value, BaseException):
        return cause_of(value)
    if type(value) is int and value in http.client.responses:
        return f"it answers {value} {http.client.responses[value]}"
    if isinstance(value, str) and value in http.client.responses.values():
        return f"it answers {value}"
    return None


def cause_of(error: BaseException) -> str:
    """Return an error's class, and behind it what the system said, which is never a text of ours or theirs."""
    names: list[str] = []
    looked_at: BaseException | None = error
    while looked_at is not None and len(names) < _MOST_CAUSES:
        names.append(type(looked_at).__name__)
        if isinstance(looked_at, OSError) and isinstance(looked_at.errno, int) and looked_at.errno > 0:
            return f"{names[0]}: {os.strerror(looked_at.errno)}"
        looked_at = _behind(looked_at)
    return names[0] if names[-1] == names[0] else f"{names[0]}: {names[-1]}"


def _behind(error: BaseException) -> BaseException | None:
    inner = (getattr(error, "reason", None), *error.args, error.__cause__, error.__context__)
    return next((one for one in inner if isinstance(one, BaseException) and one is not error), None)
