"""A rate of a queue, released by three relays while they and consumers are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from crash.processes import Process
from fairness.verdicts import Verdict, fullest_window
from fairness.work import Paced
from fairness.world import Ground, world
from outbox.limits.setting import set_queue

__all__ = ["rate_in_budget"]

RATE, BURST = 100, 20
PACED_S = 20.0
# Those too whose attempts have not ended, or not begun: the dead still hold some.
_HINTED = """
SELECT CAST(extract(epoch FROM h.at) AS float8) FROM (
  SELECT hinted_at AS at FROM {s}.attempts WHERE hinted_at IS NOT NULL
  UNION ALL SELECT released_at FROM {s}.outbox WHERE phase IN ('released', 'leased') AND released_at IS NOT NULL) AS h
"""


def rate_in_budget(ground: Ground) -> Iterator[Verdict]:
    """Release at a rate with three relays, of which one is killed every two seconds, and consumers too."""
    with world(ground) as here:
        with here.engine.begin() as connection:
            set_queue(connection, "paced", by="fairness", reason="a claim", rate_per_s=RATE, burst=BURST)
        here.submit(Paced, range(int(RATE * (PACED_S + 20))))
        relays, consumers = here.relays(3), here.consumers(2, ["PacedHandler"])
        here.stand(relays + consumers)
        here.until(lambda: here.database.count("attempts") > BURST, "jobs flow", 30)
        since = here.now().timestamp()
        for turn in range(int(PACED_S / 2)):
            time.sleep(1.5)
            if turn % 3 == 2:
                _replace(consumers, lambda: here.consumers(1, ["PacedHandler"]))
            else:
                _replace(relays, lambda: here.relays(1))
            time.sleep(0.5)
        end = here.now()
        here.claimed_until(end)
        until = end.timestamp()
        hinted = [row[0] for row in here.database.rows(_HINTED)]
        most, allowed = fullest_window(hinted, 1.0), RATE + BURST
        used = sum(since <= instant < until for instant in hinted) / (RATE * (until - since))
        name = f"rate {RATE}/s, burst {BURST}, three relays, kills"
        yield Verdict(name, f"{most} in the fullest second", f"{allowed}", most <= allowed)
        yield Verdict("and that rate is used", f"{used * 100:.1f} % in {until - since:.0f} s", "95 %", used >= 0.95)


def _replace(processes: list[Process], start: Callable[[], list[Process]]) -> None:
    """Kill any, and start another."""
    victim = random.choice(processes)
    victim.kill()
    processes[processes.index(victim)] = start()[0]
