"""A rate of a queue, released by three relays while they and consumers are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from crash.processes import Process
from fairness.verdicts import Verdict, fullest_window
from fairness.work import Paced
from fairness.world import Ground, World, world
from outbox.limits.setting import set_queue

__all__ = ["rate_in_budget"]

RATE, BURST = 100, 20
PACED_S = 30.0
# A relay's session for releases begins once it has the broker.
_WORKING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'outbox-relay/release'"
)
# Those too whose attempts have not ended, or not begun: the dead still hold some.
_HINTED = """
SELECT CAST(extract(epoch FROM h.at) AS float8) FROM (
  SELECT hinted_at AS at FROM {s}.attempts WHERE hinted_at IS NOT NULL
  UNION ALL SELECT released_at FROM {s}.outbox WHERE phase IN ('released', 'leased') AND released_at IS NOT NULL) AS h
"""


def rate_in_budget(ground: Ground) -> Iterator[Verdict]:
    """Release at a rate with three relays, of which one is killed each second, in turn, and a consumer every third."""
    with world(ground) as here:
        with here.engine.begin() as connection:
            set_queue(connection, "paced", by="fairness", reason="a claim", rate_per_s=RATE, burst=BURST)
        here.submit(Paced, range(int(RATE * (2 * PACED_S + 20))))
        relays, consumers = here.relays(3), here.consumers(2, ["PacedHandler"])
        here.stand(relays + consumers)
        here.until(lambda: here.database.count("attempts") > BURST, "jobs flow", 30)
        since = here.now().timestamp()
        kills = _kill_each_second(here, relays, consumers)
        end = here.now()
        here.claimed_until(end)
        until = end.timestamp()
        hinted = [row[0] for row in here.database.rows(_HINTED)]
        most, allowed = fullest_window(hinted, 1.0), RATE + BURST
        used = sum(since <= instant < until for instant in hinted) / (RATE * (until - since))
        name = f"rate {RATE}/s, burst {BURST}, three relays, kills"
        figure = f"{most} in the fullest second; {kills} relays killed in {until - since:.0f} s"
        yield Verdict(name, figure, f"{allowed}", most <= allowed)
        yield Verdict("and that rate is used", f"{used * 100:.1f} %", "95 %", used >= 0.95)


def _kill_each_second(here: World, relays: list[Process], consumers: list[Process]) -> int:
    """Kill the relays in turn, one each second, and start another at once; return how many were. The last that works is
    spared until another does, where starting takes so long: no rate is used while nobody releases.
    """
    began, kills = time.monotonic(), 0
    while (at := time.monotonic() + 1.0) < began + PACED_S:
        here.until(lambda: time.monotonic() >= at, "a second since the last one", 2)
        place = kills % len(relays)
        here.until(lambda: here.database.count(_WORKING) > 1, "another relay works", 60)
        _replace(relays, place, lambda: here.relays(1))
        kills += 1
        if kills % 3 == 0:
            _replace(consumers, random.randrange(len(consumers)), lambda: here.consumers(1, ["PacedHandler"]))
    return kills


def _replace(processes: list[Process], place: int, start: Callable[[], list[Process]]) -> None:
    """Kill one, and start another."""
    processes[place].kill()
    processes[place] = start()[0]
