"""When a remote service misbehaves: every so-manieth new request, so that a run of any size sees each fault."""

import itertools
from dataclasses import dataclass, field


@dataclass
class Faults:
    """How often what goes wrong. 0 is never; of two faults that fall on one request the first listed happens."""

    throttle_every: int = 0
    """Refuse with 429 and do nothing."""
    silent_every: int = 0
    """Do it, then keep silent: the caller's time-out tells it nothing."""
    silence_s: float = 5.0
    """How long the silence lasts; longer than any caller waits."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1), repr=False)

    def next(self) -> str | None:
        """Return what befalls the next new request: "throttled", "silent" or nothing."""
        number = next(self._numbers)
        if self.throttle_every and number % self.throttle_every == 0:
            return "throttled"
        if self.silent_every and number % self.silent_every == 0:
            return "silent"
        return None
