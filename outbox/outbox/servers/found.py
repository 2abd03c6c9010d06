"""Which server is used: the one named in the environment, else the first kind that can be started here."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from outbox.servers.errors import NoServer

_T = TypeVar("_T")
Log = Callable[[str], None]


class Source(StrEnum):
    """Where a server comes from, in the order of preference."""

    ENVIRONMENT = "environment"
    DOCKER = "docker"
    BINARIES = "binaries"
    WHEEL = "wheel"


ALL = tuple(Source)


def choose(available: Collection[Source], *, private: bool) -> tuple[Source, ...]:
    """Say which sources to try, best first; empty when none is left.

    A server named in the environment is the only candidate: if it does not answer, quietly using another
    one would hide the mistake. `private` leaves it out altogether, because a private server will be killed
    and wiped.
    """
    if Source.ENVIRONMENT in available and not private:
        return (Source.ENVIRONMENT,)
    return tuple(source for source in Source if source in available and source is not Source.ENVIRONMENT)


@dataclass(frozen=True)
class Way(Generic[_T]):
    """One way to a server: `missing` tells why it is closed (None if it is open), `start` goes it."""

    missing: Callable[[], str | None]
    start: Callable[[], _T]


def first(
    ways: Mapping[Source, Way[_T]],
    *,
    private: bool,
    log: Log,
    refusal: Callable[[str], NoServer],
) -> _T:
    """Start a server by the first way that works.

    Raises what `refusal` makes of the list of what was tried, when no way is open or none that is open works.
    """
    reasons: dict[Source, str] = {}
    available: set[Source] = set()
    for source, way in ways.items():
        if private and source is Source.ENVIRONMENT:
            continue
        reason = way.missing()
        if reason is None:
            available.add(source)
            if source is Source.ENVIRONMENT:
                break  # the others need not be asked: asking Docker takes its time
        else:
            reasons[source] = reason
    for source in choose(available, private=private):
        try:
            return ways[source].start()
        except NoServer as error:
            reasons[source] = str(error)
            log(f"{source.value}: {error}")
    tried = "; ".join(f"{source.value}: {reasons[source]}" for source in Source if source in reasons)
    raise refusal(tried or "nothing was allowed to be tried")
