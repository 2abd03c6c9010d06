"""The four runs: ours alone, side by side, under an old snapshot, with large numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contenders.ours import Applying, Flushing, Outbox, Sleeping, Threads
from contenders.psycopg_limit import OneStatement
from contenders.relay_by_hand import ByHand

from measure import basics, own
from measure.discover import peers
from measure.drain import drain
from measure.horizon import horizon
from measure.run import Run, turns
from measure.scale import backlog, drain_on_history, make_history
from measure.targets import AWA, PGQUEUER, PROCRASTINATE


def ours(run: Run) -> None:
    """Measure this project alone, in about three minutes."""
    options = run.options
    pace = basics.Pace(options.size(20_000, 3_000))
    kinds: list[Any] = [Outbox, Threads, Flushing, Applying, Sleeping, OneStatement]
    with run.seated(kinds) as seats:
        by_kind = {type(seat.contender): seat for seat in seats}
        main = by_kind[Outbox]
        for number in range(options.runs):
            run.pace(number)
            basics.drains(run, main, number, pace, 1)
            basics.drains(run, main, number, pace, 2)
            basics.drains(run, by_kind[Threads], number, pace, 1)
            for seat in (main, by_kind[Flushing], by_kind[OneStatement]):
                basics.submissions(run, seat, number, options.seconds(1.5))
            basics.starts(run, main, number, options.seconds(6.0))
            basics.relays(run, main, number, jobs=options.size(50_000, 4_000), slow_jobs=0)
            own.writers(run, main, number, options.seconds(2.0))
            own.traces(run, main, number, options.size(30_000, 3_000))
            own.applies(run, by_kind[Applying], number, options.size(4_000, 1_000))
            own.sleeps(run, by_kind[Sleeping], number, options.size(15_000, 2_000))
        own.idles(run, main, 0, options.seconds(5.0), options.seconds(6.0))


def side_by_side(run: Run) -> None:
    """Measure this project and its peers, in alternating order."""
    options = run.options
    pace = basics.Pace(options.size(30_000, 2_000))
    kinds: list[Any] = [Outbox, *peers(run.say, options.only), Threads, Flushing, OneStatement, ByHand]
    with run.seated(kinds) as seats:
        for seat in seats:
            basics.warm_up(run, seat, pace)
        for measure in _steps(run, pace):
            for number, seat in turns(seats, options.runs):
                if seat is seats[0]:
                    run.pace(number)
                measure(seat, number)


def _steps(run: Run, pace: basics.Pace) -> list[Callable[[Any, int], None]]:
    options = run.options
    return [
        lambda seat, number: basics.drains(run, seat, number, pace, 1),
        lambda seat, number: basics.drains(run, seat, number, pace, 2),
        lambda seat, number: basics.submissions(run, seat, number, options.seconds(3.0)),
        lambda seat, number: basics.starts(run, seat, number, options.seconds(10.0)),
        lambda seat, number: basics.relays(
            run, seat, number, jobs=options.size(100_000, 4_000), slow_jobs=options.size(10_000, 1_000)
        ),
    ]


def old_snapshot(run: Run) -> None:
    """Push jobs through while another session holds an old snapshot: ours, PgQueuer, Awa, Procrastinate."""
    options = run.options
    jobs = options.jobs or options.size(600_000, 6_000)
    rivals = [kind for kind in peers(run.say, options.only) if kind.name in {PGQUEUER, AWA, PROCRASTINATE}]
    for number in range(options.runs):
        run.pace(number)
        for kind in [Outbox, *rivals]:
            _under_a_snapshot(run, kind, number, jobs)


def _under_a_snapshot(run: Run, kind: Any, number: int, jobs: int) -> None:
    """Measure one contender on a fresh database: what one snapshot left behind is not the next one's."""
    options = run.options
    limit_s = 20.0 if options.quick else 300.0
    with run.seated([kind]) as seats:
        for seat in seats:
            with run.measuring(seat, "old snapshot", number, limit_s + 300) as values:
                probe, seconds = options.size(20_000, 2_000), options.seconds(10.0)
                seen = horizon(seat, jobs=jobs, probe=probe, seconds=seconds, limit_s=limit_s)
                values.put(horizon_drain=seen.drain_last / seen.drain_first, horizon_jobs=seen.jobs)
                values.put(horizon_drain_first=seen.drain_first, horizon_drain_last=seen.drain_last)
                values.put(horizon_p50_first=seen.p50_first)
                if seen.p50_last is not None:
                    values.put(horizon_latency=seen.p50_last / seen.p50_first, horizon_p50_last=seen.p50_last)


def large_numbers(run: Run) -> None:
    """Drain a large backlog, and a usual one on top of a long history."""
    options = run.options
    usual = options.size(20_000, 2_000)
    large = options.jobs or options.size(1_000_000, 20_000)
    finished = (options.jobs or options.size(1_000_000, 20_000)) * 10
    with run.seated([Outbox]) as seats:
        for seat in seats:
            for number in range(options.runs):
                run.pace(number)
                with run.measuring(seat, "usual backlog", number, 120) as values:
                    values.put(scale_small=drain(seat, workers=1, jobs=usual, arena=run.arena).rate)
            with run.measuring(seat, f"backlog of {large:,}", 0, 900) as values:
                seen = backlog(seat, jobs=large, early=min(10_000, large // 4))
                values.put(
                    scale_backlog=seen.rate, memory_relay=seen.relay_growth, memory_consumer=seen.consumer_growth
                )
                values.put(memory_relay_mib=seen.relay_mib, memory_consumer_mib=seen.consumer_mib)
            with run.measuring(seat, f"{finished:,} finished", 0, 2400) as values:
                values.put(history_s=make_history(seat, finished=finished))
            for number in range(options.runs):
                first = (number + 1) * 1_000_000
                with run.measuring(seat, f"on {finished:,} finished", number, 300) as values:
                    values.put(scale_finished=drain_on_history(seat, jobs=usual, first=first, arena=run.arena))
