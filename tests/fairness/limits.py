"""Limits of one and of three, by queue and by concurrency key, while one of twenty consumers is killed each second."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, pairwise

from crash.processes import Process
from fairness.verdicts import Span, Verdict, most_at_once
from fairness.work import LEASE_S, Few, Keyed, Lonely
from fairness.world import Ground, World, world
from outbox.limits.setting import set_queue

__all__ = ["limits_under_kills"]

CONSUMERS = 20
KILLED_S = 60.0
# After the last kill: how long slots may take to come back, and how many jobs each is to have had then.
BACK_S = 30.0
AFTER = 30
LIMITS = {"lonely": 1, "few": 3, "keyed": 1}
NAMES = {"lonely": "a queue's limit of 1", "few": "a queue's limit of 3", "keyed": "a concurrency key's limit of 1"}
# Until when a lease that was lost has been sure to last: heartbeats may have made it longer.
_CLAIMED = f"""
SELECT CAST(extract(epoch FROM a.claimed_at) AS float8), CAST(extract(epoch FROM CASE WHEN a.outcome = 'lease_lost'
    THEN least(a.ended_at, a.claimed_at + interval '{LEASE_S} s') ELSE a.ended_at END) AS float8)
FROM {{s}}.attempts AS a JOIN {{s}}.jobs AS j ON j.id = a.job_id WHERE j.queue = %s
"""
_UNEXPIRED = """
SELECT queue, count(*) FROM {s}.outbox WHERE phase = 'leased' AND lease_expires_at > {s}.clock() GROUP BY queue
"""
_RAN = """
SELECT CAST(extract(epoch FROM began_at) AS float8), CAST(extract(epoch FROM ended_at) AS float8)
FROM public.runs WHERE place = %s AND ended_at IS NOT NULL AND number > %s
"""
_HOLDERS = "SELECT lease_owner FROM {s}.jobs WHERE queue IN ('lonely', 'keyed') AND state = 'running'"
_ORDER = """
SELECT CAST(j.logical_key AS integer) FROM {s}.jobs AS j JOIN {s}.attempts AS a ON a.job_id = j.id
WHERE j.queue = 'keyed' AND a.outcome = 'succeeded' ORDER BY a.claimed_at
"""


def limits_under_kills(ground: Ground) -> Iterator[Verdict]:
    """Kill one each second for a minute, in turn any and one whose job must run alone; then see that what is left has
    all the slots.
    """
    with world(ground) as here:
        for queue in ("lonely", "few"):
            with here.engine.begin() as connection:
                set_queue(connection, queue, by="fairness", reason="a claim", max_running=LIMITS[queue])
        for payload in (Lonely, Few, Keyed):
            here.submit(payload, range(2500))
        consumers = _consumers(here, CONSUMERS)
        here.stand([*here.relays(2), *consumers])
        with _watched(here) as seen:
            killed = _kill_each_second(here, consumers)
            mark = here.database.value("SELECT coalesce(max(number), 0) FROM public.runs")
            began = time.monotonic()
            # What the dead had is free after two seconds, and three more may pass until that is seen.
            here.until(lambda: _all_back(_ran(here, mark)), "all slots are back", BACK_S)
            took_s = time.monotonic() - began
        ran = _ran(here, mark)
        for place, most in LIMITS.items():
            yield _verdict(here, place, most, seen[place], killed)
            back = most_at_once(ran[place])
            figure = f"{back} ran at once, {len(ran[place])} jobs in the {took_s:.1f} s after the last kill"
            yield Verdict(f"{NAMES[place]}: all slots are back", figure, str(most), back == most)
        done = [row[0] for row in here.database.rows(_ORDER)]
        wrong = sum(second < first for first, second in pairwise(done))
        figure = f"{wrong} of {len(done)} jobs came before one that was submitted earlier"
        yield Verdict("a key's order, under kills", figure, "none", wrong == 0 and len(done) > 1)


def _ran(here: World, mark: int) -> dict[str, list[Span]]:
    """Return from when until when each job ran that began after a mark, by what it may not overlap."""
    return {place: [(row[0], row[1]) for row in here.database.rows(_RAN, place, mark)] for place in LIMITS}


def _all_back(ran: Mapping[str, Sequence[Span]]) -> bool:
    """Tell whether as many have run at once as may, everywhere, and others after them."""
    return all(most_at_once(ran[place]) >= most and len(ran[place]) > AFTER * most for place, most in LIMITS.items())


def _verdict(here: World, place: str, most: int, sampled: int, killed: int) -> Verdict:
    """Judge by what the jobs saw themselves, by what is recorded of attempts, and by the leases seen meanwhile."""
    spans = [(row[0], row[1]) for row in here.database.rows(_CLAIMED, place)]
    recorded = most_at_once(spans)
    met = here.database.count("SELECT 1 FROM public.runs WHERE place = %s AND NOT alone", place) if most == 1 else 0
    own = f"{met} jobs met another, " if most == 1 else ""
    figure = f"{own}{recorded} leases at once by {len(spans)} attempts' records, {sampled} by looks; {killed} kills"
    held = max(recorded, sampled) <= most and not met and killed >= KILLED_S * 0.8
    return Verdict(f"{NAMES[place]}, under kills", figure, f"{most} of {CONSUMERS} consumers", held)


@contextmanager
def _watched(here: World) -> Iterator[Counter[str]]:
    """Count the unexpired leases of each queue again and again, and keep the most."""
    seen: Counter[str] = Counter()
    over = threading.Event()
    looking = here.database.connect()
    query = here.database.sql(_UNEXPIRED)

    def watch() -> None:
        while not over.wait(0.01):
            for queue, running in looking.execute(query).fetchall():
                seen[queue] = max(seen[queue], running)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(10)


def _consumers(here: World, how_many: int) -> list[Process]:
    handlers = ["LonelyHandler", "FewHandler", "KeyedHandler"]
    return here.consumers(how_many, handlers, OUTBOX_CONSUMER_CONCURRENCY="3")


def _kill_each_second(here: World, consumers: list[Process]) -> int:
    """Kill, and start another, until the time is over; return how many were killed."""
    began = time.monotonic()
    for second in count():
        at = began + second
        if at >= began + KILLED_S or time.monotonic() >= began + KILLED_S:
            return second
        time.sleep(max(0.0, at - time.monotonic()))
        victim = (_holder(here, consumers) if second % 2 else None) or random.choice(consumers)
        victim.kill()
        consumers[consumers.index(victim)] = _consumers(here, 1)[0]
    return 0


def _holder(here: World, consumers: Sequence[Process]) -> Process | None:
    owners = {row[0].split("/")[1] for row in here.database.rows(_HOLDERS)}
    return next((process for process in consumers if str(process.popen.pid) in owners), None)
