"""Where handlers with `isolation = "process"` run: threads, as for other handlers, each of which follows one child."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from outbox.settings import Settings
from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.contract.isolation_terms import terms_of
from outbox_consumer.holding.book import Entry
from outbox_consumer.isolation.course import Course
from outbox_consumer.isolation.hello import hello_for
from outbox_consumer.isolation.pool import Children
from outbox_consumer.running.attempt import Attempts
from outbox_consumer.running.loading import read_payload
from outbox_consumer.running.slots import ThreadSlots
from outbox_schemas import HandlerError

__all__ = ["ProcessSlots"]

# Seconds after it was told that the lease is lost, until a handler is interrupted, and until its process is killed.
_PATIENCE_S = (1.0, 3.0)
_PATIENCE_AT_THE_END_S = (0.1, 0.4)


class ProcessSlots(ThreadSlots):
    """`size` threads, each running one attempt at a time in a child process. `apply` runs on the thread.

    The threads live as long as the slots do: on Linux a child ends with the thread that has started it.

    Raises:
        HandlerError: a handler can't be made anew in another process.
    """

    def __init__(
        self,
        size: int,
        attempts: Attempts,
        on_free: Callable[[], None],
        *,
        handlers: Sequence[AnyHandler],
        settings: Settings,
    ) -> None:
        super().__init__(size, attempts, on_free)
        if not sys.executable:
            raise HandlerError(
                'isolation = "process" needs sys.executable, the path of a Python interpreter; it is empty'
            )
        known = [(handler, terms_of(type(handler))) for handler in handlers]
        self._children = Children(
            size, [(one, hello_for(one, settings, terms), terms) for one, terms in known if terms is not None]
        )

    def cancel(self, entry: Entry) -> None:
        """Do nothing: the thread that follows the child sees it within a tenth of a second, and ends the child if the
        handler doesn't.
        """

    def close(self) -> None:
        """End the children, within a second, and the threads."""
        self._children.close()
        super().close()

    def _attempt(self, entry: Entry) -> None:
        try:
            # The child reads it, too. Here, a bad one costs no process, and what `apply`'s errors must hide is known.
            read_payload(entry)
            child = self._children.borrow(entry.handler)
        except BaseException as error:  # noqa: BLE001 - whatever keeps it from starting fails this attempt alone
            self._attempts.fail(entry, error)
            return

        def work(entry: Entry) -> Any:
            # Given back before the end is written or `apply` runs, so that neither keeps a process waiting.
            try:
                return Course(child, entry, self._patience).run()
            finally:
                self._children.give_back(entry.handler, child)

        if entry.job.is_lost:
            self._children.give_back(entry.handler, child)
            self._attempts.drop(entry, "the lease was lost before the start")
        else:
            self._attempts.run(entry, work)

    def _patience(self) -> tuple[float, float]:
        return _PATIENCE_AT_THE_END_S if self._children.closing else _PATIENCE_S
