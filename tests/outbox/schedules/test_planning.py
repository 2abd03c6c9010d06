"""What a turn makes of a moment, for any rule, policy and history of looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from outbox.schedules.planning import Missed, Terms, delay_s, next_after, plan, plan_last
from outbox.schedules.rules import IntervalRule, parse_rule

START = datetime(2025, 10, 25, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return an instant so long after the start."""
    return START + timedelta(seconds=seconds)


def terms(rule: IntervalRule, missed: Missed = Missed.ALL, limit: int = 10_000, grace_s: int = 60) -> Terms:
    """Return terms for a rule."""
    return Terms(rule, missed, limit, grace_s)


def minutely() -> IntervalRule:
    """Return a rule of every minute from the start on."""
    return IntervalRule(60, int(START.timestamp()))


@given(
    looks=st.lists(st.floats(0.1, 40_000), min_size=1, max_size=30),
    rule=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0,1,2 2 * * *", "every 61s", "every 3600s"]),
    most=st.integers(1, 7),
    backward=st.integers(0, 30),
)
def test_with_all_nothing_is_lost_or_doubled(looks: list[float], rule: str, most: int, backward: int) -> None:
    """However looks fall, also where the clock goes back in between, each occurrence is made once, in order."""
    parsed = parse_rule(rule, "Europe/Berlin", START)
    place, now = START, START
    made: list[datetime] = []
    for number, pause_s in enumerate(looks):
        now += timedelta(seconds=-3600 if number == backward else pause_s)
        while True:
            planned = plan(Terms(parsed, Missed.ALL, 10_000, 60), place, now, most)
            made += planned.make
            assert planned.missed == 0
            assert len(planned.make) <= most
            assert planned.after >= place
            place = planned.after
            if planned.next_at is None or planned.next_at > now:
                break
    until = max(place, START)
    expected = parsed.newest(int(START.timestamp()), int(until.timestamp()), 10**6)
    assert [int(one.timestamp()) for one in made] == expected


@example(late_s=150, missed=Missed.SKIP, limit=1)  # late by the whole grace, and in time
@given(late_s=st.integers(0, 5000), missed=st.sampled_from(Missed), limit=st.integers(1, 30))
def test_each_policy_makes_its_part_and_counts_the_rest(late_s: int, missed: Missed, limit: int) -> None:
    """What is in time is always made; of what is late the policy's part; made and passed over are all there were."""
    planned = plan(terms(minutely(), missed, limit, 90), at(0), at(late_s), 1000)
    ages = [late_s - int((one - START).total_seconds()) for one in planned.make]
    in_time = [age for age in ages if age <= 90]
    late = len(ages) - len(in_time)
    everything = late_s // 60
    assert len(in_time) == sum(1 for n in range(1, everything + 1) if late_s - 60 * n <= 90)
    were_late = everything - len(in_time)
    wanted = {Missed.SKIP: 0, Missed.LATEST: int(not in_time and were_late > 0), Missed.ALL: min(limit, were_late)}
    assert late == wanted[missed]
    assert ages == [60 * n + late_s % 60 for n in range(len(ages))][::-1]  # the last ones, ascending
    assert planned.missed == were_late - late


def test_a_long_absence_costs_one_job_with_latest() -> None:
    """A relay that comes back after a year makes one job, and knows what it passed over."""
    rule = IntervalRule(3600, int(START.timestamp()))
    planned = plan(terms(rule, Missed.LATEST), at(1), at(365 * 86_400 + 1800))
    assert planned.make == [at(365 * 86_400)]
    assert planned.missed == 365 * 24 - 1
    assert planned.next_at == at(365 * 86_400 + 3600)


def test_what_does_not_fit_into_a_turn_has_the_next() -> None:
    """A turn that is cut goes on right after what it has made, and is due again at once."""
    first = plan(terms(minutely()), at(0), at(3600), 25)
    assert len(first.make) == 25
    assert first.after == first.make[-1]
    assert first.next_at == first.make[-1] + timedelta(minutes=1)
    second = plan(terms(minutely()), first.after, at(3600), 100)
    assert len(second.make) == 35
    assert (first.missed, second.missed) == (0, 0)


@given(
    rule=st.sampled_from(["*/7 * * * *", "30 2 * * *", "0,1,2 2 * * *", "every 61s", "every 3600s"]),
    missed=st.sampled_from(Missed),
    limit=st.integers(1, 30),
    grace_s=st.sampled_from([0, 60, 7200]),
    bounds=st.tuples(st.none() | st.integers(0, 90_000), st.none() | st.integers(0, 90_000)),
    now_s=st.floats(-4000, 100_000),
    most=st.integers(1, 5),
)
def test_a_last_turn_is_as_any_other_and_leaves_nothing(
    rule: str, missed: Missed, limit: int, grace_s: int, bounds: tuple[int | None, int | None], now_s: float, most: int
) -> None:
    """It makes and counts what all turns would at that moment; within a bound the last ones, and counts the others."""
    start, end = (None if bound is None else at(bound) for bound in bounds)
    these = Terms(parse_rule(rule, "Europe/Berlin", START), missed, limit, grace_s, start, end)
    usual, last = plan(these, START, at(now_s), 10_000), plan_last(these, START, at(now_s), 10_000)
    assert last == usual
    bounded = plan_last(these, START, at(now_s), most)
    assert bounded.make == usual.make[-most:]
    assert len(bounded.make) + bounded.missed == len(usual.make) + usual.missed
    assert (bounded.after, bounded.next_at) == (usual.after, usual.next_at)


def test_start_and_end_are_part_of_the_plan() -> None:
    """An occurrence at the start or the end comes; none before or after does; in the end there is none any more."""
    bounded = Terms(minutely(), Missed.ALL, 100, 60, at(120), at(240))
    assert next_after(bounded, at(-1000)) == at(120)
    planned = plan(bounded, at(0), at(1000))
    assert planned.make == [at(120), at(180), at(240)]
    assert (planned.next_at, planned.missed) == (None, 0)
    between = Terms(minutely(), Missed.ALL, 100, 60, at(120.5), at(239.5))
    assert plan(between, at(0), at(1000)).make == [at(180)]


def test_a_clock_that_was_put_back_makes_nothing_twice() -> None:
    """What was seen to stays so until the clock is past it again."""
    planned = plan(terms(minutely()), at(600), at(0))
    assert planned.make == []
    assert planned.after == at(600)
    assert planned.next_at == at(660)


@given(st.text("abc", min_size=1, max_size=5), st.integers(0, 10**9), st.integers(0, 86_400))
def test_jitter_is_bounded_and_always_the_same(name: str, seconds: int, jitter_s: int) -> None:
    """An occurrence's delay depends on its name and instant alone."""
    instant = datetime.fromtimestamp(seconds, UTC)
    assert 0 <= delay_s(name, instant, jitter_s) <= jitter_s
    assert delay_s(name, instant, jitter_s) == delay_s(name, instant, jitter_s)


def test_jitter_spreads() -> None:
    """Schedules of one rule do not start together."""
    assert len({delay_s(f"s{n}", START, 600) for n in range(100)}) > 70
