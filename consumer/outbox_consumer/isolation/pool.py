"""The children of a consumer: as many as there are slots, each for one handler, kept while they are young and idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.contract.isolation_terms import Terms
from outbox_consumer.failing.failures import Reported
from outbox_consumer.isolation.causes import failed_start
from outbox_consumer.isolation.process import Child

__all__ = ["Children"]

_CLOSE_S = 0.8
_LOOK_S = 0.01


class Children:
    """Lends children to slots. Thread-safe.

    Args:
        size: how many may exist at once.
        handlers: each with what its children are told, and their terms.
    """

    def __init__(self, size: int, handlers: Iterable[tuple[AnyHandler, bytes, Terms]]) -> None:
        self._size = size
        # By identity, as `Registry.handlers` has them.
        self._told = {id(handler): (hello, terms) for handler, hello, terms in handlers}
        self._lock = threading.Lock()
        self._idle: list[tuple[AnyHandler, Child]] = []
        self._lent: set[Child] = set()
        self.closing = False

    def borrow(self, handler: AnyHandler) -> Child:
        """Return a child for a handler, an idle one or a new one.

        Raises:
            Reported: none could be started.
        """
        child, others = self._choose(handler)
        for other in others:
            other.end()
        return child or self._start(handler)

    def give_back(self, handler: AnyHandler, child: Child) -> None:
        """Take a child back; one that is old, used up or out of order is ended."""
        with self._lock:
            self._lent.discard(child)
            keep = child.answered and not self.closing and _is_young(child)
            if keep:
                self._idle.append((handler, child))
        if not keep:
            if not child.answered:
                child.kill()
            child.end()

    def close(self) -> None:
        """End every child, within a second. Who has borrowed one hears of it there."""
        self.closing = True
        with self._lock:
            idle, self._idle = [child for _, child in self._idle], []
        for child in idle:
            child.dismiss()
        until = time.monotonic() + _CLOSE_S
        while (self._lent or not all(child.gone() for child in idle)) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        with self._lock:
            for child in (*idle, *self._lent):
                child.kill()
        for child in idle:
            child.end()

    def _choose(self, handler: AnyHandler) -> tuple[Child | None, list[Child]]:
        """Return an idle child of the handler if there is one, and those that are to be ended."""
        with self._lock:
            old = [child for _, child in self._idle if not _is_young(child) or child.gone()]
            self._idle = [(owner, child) for owner, child in self._idle if child not in old]
            # The one used last: the others grow old unused.
            mine = next((item for item in reversed(self._idle) if item[0] is handler), None)
            if mine is not None:
                self._idle.remove(mine)
                self._lent.add(mine[1])
            elif self._idle and len(self._idle) + len(self._lent) >= self._size:
                old.append(self._idle.pop(0)[1])
        return (None if mine is None else mine[1]), old

    def _start(self, handler: AnyHandler) -> Child:
        hello, terms = self._told[id(handler)]
        try:
            child = Child(terms)
        except OSError as error:
            raise Reported(failed_start(str(error))) from error
        with self._lock:
            self._lent.add(child)
        try:
            if self.closing:
                raise Reported(failed_start("the consumer has ended"))
            child.greet(hello)
        except BaseException:
            with self._lock:
                self._lent.discard(child)
            child.kill()
            child.end()
            raise
        return child


def _is_young(child: Child) -> bool:
    terms = child.terms
    return child.jobs < terms.max_jobs and time.monotonic() - child.started_at < terms.max_age_s
