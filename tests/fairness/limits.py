"""Limits and rates while processes are killed: nothing overlaps, no window is over its budget, no slot is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from crash.processes import Process
from fairness.verdicts import Verdict, fullest_window, most_at_once
from fairness.work import Few, Lonely, Paced
from fairness.world import Ground, World, world
from outbox.limits import set_queue

__all__ = ["one_at_a_time", "rate_in_budget"]

CONSUMERS = 20
KILLED_S = 60.0
RATE, BURST = 100, 20
PACED_S = 20.0
FEW = 3
_CLAIMED = """
SELECT CAST(extract(epoch FROM a.claimed_at) AS float8), CAST(extract(epoch FROM a.ended_at) AS float8)
FROM {s}.attempts AS a JOIN {s}.jobs AS j ON j.id = a.job_id WHERE j.queue = %s
"""
_RAN = """
SELECT CAST(extract(epoch FROM began_at) AS float8), CAST(extract(epoch FROM ended_at) AS float8)
FROM public.runs WHERE place = %s AND ended_at IS NOT NULL AND number > %s
"""
_HOLDER = "SELECT lease_owner FROM {s}.jobs WHERE queue = 'lonely' AND state = 'running'"
_HINTED = "SELECT CAST(extract(epoch FROM hinted_at) AS float8) FROM {s}.attempts WHERE hinted_at IS NOT NULL"


def one_at_a_time(ground: Ground) -> Iterator[Verdict]:
    """Kill one of twenty consumers each second for a minute, in turn any and the one that runs the job; then see that
    a last batch has all the slots.
    """
    with world(ground) as here:
        _limit(here, "lonely", max_running=1)
        _limit(here, "few", max_running=FEW)
        for payload in (Lonely, Few):
            here.submit(payload, range(2000))
        here.stand(here.relays(2))
        consumers = _twenty(here, CONSUMERS)
        here.stand(consumers)
        killed = _kill_each_second(here, consumers)
        mark = here.database.value("SELECT coalesce(max(number), 0) FROM public.runs")
        # What was claimed by the dead is over two seconds later.
        time.sleep(5)
        last = {place: [row[:2] for row in here.database.rows(_RAN, place, mark)] for place in ("lonely", "few")}
        unequal = here.database.count("SELECT 1 FROM public.runs WHERE place = 'lonely' AND NOT alone")
        for place, most in (("lonely", 1), ("few", FEW)):
            spans = [(row[0], row[1]) for row in here.database.rows(_CLAIMED, place)]
            at_once = most_at_once(spans)
            told = f", {unequal} of them met another" if place == "lonely" else ""
            figure = f"{at_once} at once in {len(spans)} attempts{told}; {CONSUMERS} consumers, {killed} killed"
            held = at_once <= most and not (unequal and place == "lonely") and killed >= KILLED_S * 0.8
            yield Verdict(f"a queue's limit of {most}, under kills", figure, f"{most} at once", held)
            back = most_at_once(last[place])
            figure = f"{back} ran at once, {len(last[place])} jobs in the 5 s after the last kill"
            yield Verdict(f"slots of a limit of {most} are back", figure, f"all {most}", back == most)


def rate_in_budget(ground: Ground) -> Iterator[Verdict]:
    """Release at a rate with three relays, of which one is killed every two seconds, and consumers too."""
    with world(ground) as here:
        _limit(here, "paced", rate_per_s=RATE, burst=BURST)
        here.submit(Paced, range(int(RATE * (PACED_S + 20))))
        relays, consumers = here.relays(3), here.consumers(2, ["PacedHandler"])
        here.stand(relays + consumers)
        here.until(lambda: here.database.count("attempts") > BURST, "jobs flow", 30)
        since = here.database.value("SELECT CAST(extract(epoch FROM {s}.clock()) AS float8)")
        for turn in range(int(PACED_S / 2)):
            time.sleep(1.5)
            if turn % 3 == 2:
                _replace(consumers, lambda: here.consumers(1, ["PacedHandler"]))
            else:
                _replace(relays, lambda: here.relays(1))
            time.sleep(0.5)
        until = here.database.value("SELECT CAST(extract(epoch FROM {s}.clock()) AS float8)")
        time.sleep(5)
        hinted = [row[0] for row in here.database.rows(_HINTED)]
        most, allowed = fullest_window(hinted, 1.0), RATE + BURST
        used = sum(since <= instant < until for instant in hinted) / (RATE * (until - since))
        name = f"rate {RATE}/s, burst {BURST}, three relays, kills"
        yield Verdict(name, f"{most} in the fullest second", f"{allowed}", most <= allowed)
        yield Verdict("and that rate is used", f"{used * 100:.1f} % in {until - since:.0f} s", "95 %", used >= 0.95)


def _twenty(here: World, how_many: int) -> list[Process]:
    return here.consumers(how_many, ["LonelyHandler", "FewHandler"], OUTBOX_CONSUMER_CONCURRENCY="2")


def _kill_each_second(here: World, consumers: list[Process]) -> int:
    """Kill, and start another, until the time is over; return how many were killed."""
    killed = 0
    until = time.monotonic() + KILLED_S
    for second in count():
        at = until - KILLED_S + second
        if at >= until:
            return killed
        time.sleep(max(0.0, at - time.monotonic()))
        _replace(consumers, lambda: _twenty(here, 1), _holder(here, consumers) if second % 2 else None)
        killed += 1
    return killed


def _holder(here: World, consumers: Sequence[Process]) -> Process | None:
    owners = {row[0].split("/")[1] for row in here.database.rows(_HOLDER)}
    return next((process for process in consumers if str(process.popen.pid) in owners), None)


def _replace(processes: list[Process], start: Callable[[], list[Process]], victim: Process | None = None) -> None:
    """Kill one, any unless it is named, and start another."""
    victim = victim or random.choice(processes)
    victim.kill()
    processes[processes.index(victim)] = start()[0]


def _limit(here: World, queue: str, **terms: float) -> None:
    with here.engine.begin() as connection:
        set_queue(connection, queue, by="fairness", reason="a claim", **terms)  # type: ignore[arg-type]
