"""For how long a handler's jobs go on, and whether the keys that they rely on live as long. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from outbox_consumer.contract.handler import AnyHandler
from outbox_schemas import SettingsError

__all__ = ["check_inbox_keys"]


def check_inbox_keys(handlers: Iterable[AnyHandler], keep_s: float | None) -> None:
    """Refuse to start where an inbox key may be forgotten while a job that took it is still being retried: `once` would
    take the repeat for the first.

    Args:
        handlers: those of the consumer.
        keep_s: for how long inbox keys are kept, in seconds; None: for ever.

    Raises:
        SettingsError: a handler's retries can take longer.
    """
    if keep_s is None:
        return
    courses = [(handler.retry.longest_course(handler.max_runtime), handler) for handler in handlers]
    longest, late = max(courses, key=lambda course: course[0])
    if longest > timedelta(seconds=keep_s):
        raise SettingsError(
            f"inbox_keep_s ({keep_s:g} s) is shorter than the retries of {type(late).__qualname__} can take "
            f"({longest.total_seconds():g} s); raise it, or lower that handler's max_age or max_runtime"
        )
