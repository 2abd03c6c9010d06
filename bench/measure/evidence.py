"""Nothing lost, nothing doubled: from the store and from the handlers' own stamps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from measure.arena import Seat
from measure.stamps import read_stamps


class Wrong(Exception):  # noqa: N818 - named by what it says
    """A run whose jobs don't add up. Its figures don't count."""


@dataclass(frozen=True)
class Started:
    """The instants at which the jobs started, sorted, in seconds since 1970."""

    instants: list[float]
    by_number: dict[int, float]

    def after(self, instant: float) -> int:
        """Return how many started later than this."""
        return sum(1 for started in self.instants if started > instant)


def started_once(seat: Seat, numbers: Iterable[int]) -> Started:
    """Return when each of these jobs started; `Wrong` if one did not, or more than once."""
    stamps = list(read_stamps(seat.stamps))
    counts = Counter(number for number, _ in stamps)
    wanted = set(numbers)
    lost = wanted - counts.keys()
    doubled = sum(1 for number in wanted if counts[number] > 1)
    if lost or doubled:
        raise Wrong(f"{len(lost)} of {len(wanted)} jobs never started, {doubled} started more than once")
    return Started(
        sorted(instant for number, instant in stamps if number in wanted),
        {number: instant for number, instant in stamps if number in wanted},
    )


def nothing_left(seat: Seat) -> None:
    """Raise `Wrong` if the store still holds a job that has not ended."""
    left = seat.contender.left()
    if left:
        raise Wrong(f"{left} jobs are not completed in the store")
