"""When a governed queue is looked at again, the clock driven: a rate is used, a dear look leaves time for others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from outbox.releasing.limited import LimitedRelease
from outbox.releasing.relaying import ReleasedHint
from outbox_relay.limit_looks import LONGEST_S, LimitLooks

HINT = ReleasedHint(b"", 1, 0)
SECONDS = 60.0


def used(rate: float, burst: int, took_s: Callable[[], float]) -> float:
    """Return which part of a rate one relay uses whose looks take so long, while all is claimed at once."""
    looks, now, tokens, at, out = LimitLooks(), 0.0, float(burst), 0.0, 0
    while now < SECONDS:
        began = max(now, looks.again_at)
        tokens, at = min(burst, tokens + rate * (began - at)), began
        got = int(tokens)
        tokens -= got
        out += got
        now = began + took_s()
        wait_s = (1 - min(burst, tokens + rate * (now - at))) / rate
        looks.looked(LimitedRelease([HINT] * got, True, max(0.0, wait_s), burst / rate), began=began, ended=now)
    return out / (rate * SECONDS)


def pauses(got: LimitedRelease, took_s: Sequence[float]) -> list[float]:
    """Return the pauses after looks that take so long, one after the other."""
    looks, now, found = LimitLooks(), 0.0, list[float]()
    for took in took_s:
        looks.looked(got, began=now, ended=now + took)
        found.append(looks.again_at - now - took)
        now = looks.again_at
    return found


@pytest.mark.parametrize("took_s", [0.002, 0.02, 0.05, 0.07])
def test_a_rate_is_used_though_looks_are_slow(took_s: float) -> None:
    """Where a look takes a third of the time in which the burst is earned, as on a busy machine, nothing is lost."""
    assert used(100, 20, lambda: took_s) >= 0.99


def test_a_rate_is_used_though_looks_are_slow_now_and_then() -> None:
    """A look that had to wait for its turn says nothing of what the next one takes."""
    chance = random.Random(5)
    assert used(100, 20, lambda: chance.choice([0.005, 0.02, 0.1])) >= 0.97


def test_a_token_that_comes_late_puts_no_other_look_off() -> None:
    """A slow rate's next token is a minute away; others of the queue may have room long before."""
    waits = pauses(LimitedRelease([], True, 60.0, 60.0), [0.001] * 10)
    assert max(waits) == pytest.approx(LONGEST_S)


def test_a_look_that_is_dear_for_a_rate_leaves_half_of_the_time() -> None:
    """Where no pace would use the rate up, other queues have half of the loop's time; else four fifths."""
    assert pauses(LimitedRelease([HINT], True, 0.01, 0.01), [0.5] * 4) == pytest.approx([0.5] * 4)
    assert pauses(LimitedRelease([HINT], True, 1.0, 100.0), [0.5] * 4) == pytest.approx([2.0] * 4)


def test_a_single_slow_look_is_no_dear_one() -> None:
    """The shortest of the last looks tells what one takes. One that found somebody else at it tells nothing."""
    held = LimitedRelease([], held=True)
    assert pauses(held, [0.001, 0.001, 0.4, 0.001])[2] < 0.06
    assert pauses(held, [0.4] * 3)[2] == pytest.approx(1.6)
    looks = LimitLooks()
    looks.looked(held, began=0.0, ended=0.4)
    looks.looked(LimitedRelease([], held=True, missed=True), began=2.0, ended=2.001)
    assert looks.again_at >= 3.6


def test_a_rate_whose_hints_wait_is_looked_at_in_time() -> None:
    """What is claimed at last makes room, which waits no longer than a part of the burst takes to be earned."""
    waiting = LimitedRelease([], True, None, 0.2)
    assert max(pauses(waiting, [0.001] * 20)) == pytest.approx(0.05)
    assert max(pauses(LimitedRelease([], held=True), [0.001] * 20)) == pytest.approx(0.1)


def test_tokens_come_a_few_together_where_the_burst_allows_it() -> None:
    """A look for each token would cost much: an eighth of the burst comes together. A burst of one comes in time."""
    together = pauses(LimitedRelease([HINT], True, 0.001, 0.2), [0.0005] * 5)
    assert [later for _, later in pairwise(together)] == pytest.approx([0.02] * 4)
    assert pauses(LimitedRelease([HINT], True, 0.01, 0.01), [0.0005]) == pytest.approx([0.01])
