"""Which delivery tags of one channel are out, and how few acknowledgements tell that some are decided. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["AckLedger"]


class AckLedger:
    """The unacknowledged deliveries of one channel, whose tags only grow.

    One acknowledgement may cover every delivery up to its tag; it may be used as far as all of these are decided.
    """

    def __init__(self) -> None:
        self._out: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self._out)

    def deliver(self, tag: int) -> None:
        """Record a delivery."""
        self._out[tag] = False

    def forget(self, tag: int) -> bool:
        """Drop a delivery that is rejected by itself; False if it is not out (any more)."""
        return self._out.pop(tag, None) is not None

    def decide(self, tags: Iterable[int]) -> Iterator[tuple[int, bool]]:
        """Mark deliveries decided and yield the acknowledgements to send: (tag, whether it covers all earlier
        ones).
        """
        decided = [tag for tag in tags if tag in self._out]
        for tag in decided:
            self._out[tag] = True
        prefix: list[int] = []
        for tag, done in self._out.items():
            if not done:
                break
            prefix.append(tag)
        for tag in prefix:
            del self._out[tag]
        if prefix:
            yield prefix[-1], len(prefix) > 1
        for tag in decided:
            if self._out.pop(tag, None):
                yield tag, False
