"""Going on with a coroutine whose first step was made by hand: as an awaitable of the task that made it."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

from outbox_consumer.basis.copies import end_copy

__all__ = ["Rest"]


class Rest:
    """The rest of a coroutine that was started by hand in the running task and waits for what it yielded."""

    def __init__(self, course: Coroutine[Any, Any, None], waited_for: Any) -> None:
        self._course = course
        self._waited_for = waited_for

    def __await__(self) -> Generator[Any, Any, None]:
        waited_for = self._waited_for
        while True:
            # Before as well: a copy that another task has made must not go on with this one.
            end_copy()
            try:
                try:
                    sent = yield waited_for
                except GeneratorExit:
                    self._course.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - a cancellation, for one: the coroutine's to see
                    waited_for = self._course.throw(error)
                else:
                    waited_for = self._course.send(sent)
            except StopIteration:
                return
            finally:
                end_copy()
