"""How large the demonstration is and how long it may take."""

from dataclasses import dataclass


class DemoError(Exception):
    """The demonstration could not be carried out; the message is for people."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and seconds of one run."""

    statements: int = 300
    """Distinct statements; each is asked for twice, at the same moment."""
    per_second: float = 11.0
    """Statements asked for per second, so that work flows while things break."""
    senders: int = 8
    """Requests under way at once."""
    concurrency: int = 4
    """Handlers per consumer."""
    render_pause_s: float = 0.3
    """Added to each rendering: a real one takes milliseconds, too short to be killed in."""
    lease_s: float = 5.0
    """Lease of an attempt; short, because the audience waits for its end."""
    throttle_every: int = 25
    """The payment provider turns every so-manieth charge away for a second."""
    silent_every: int = 30
    """Payment provider and mail relay do every so-manieth thing and don't answer."""
    start_s: float = 60.0
    """Bound on the start of anything."""
    step_s: float = 30.0
    """Bound on any one thing that the demonstration waits for."""
    drain_s: float = 60.0
    """Bound on the time from the last request to the end of the last job."""

    def share(self, part: float) -> int:
        """Return this part of all statements, at least 1."""
        return max(1, int(self.statements * part))
