"""How much a statement is asked for follows how long the last ones took."""

from __future__ import annotations

import pytest

from outbox.database.portions import Portion


class Clock:
    """Moves only when told."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.mark.parametrize(
    ("asked", "took_s", "most", "then"),
    [
        (500, 0.2, 500, 250),
        (300, 0.001, 500, 500),
        (100, 0.03, 500, 100),
        (10, 9.0, 500, 10),
        (5, 9.0, 5, 5),
    ],
    ids=["slow", "quick", "neither", "the least", "less than the least"],
)
def test_a_slow_statement_is_halved_and_a_quick_one_grows_back(asked: int, took_s: float, most: int, then: int) -> None:
    """Between a least size and the one that is set."""
    clock = Clock()
    portion = Portion(most, least=10, aim_s=0.05, clock=clock)
    portion.size = asked
    with portion.asked(asked):
        clock.now += took_s
    assert portion.size == then


def test_what_fails_is_asked_for_a_quarter() -> None:
    """Down to the least, which it then knows for what it is."""
    portion = Portion(100, least=10, aim_s=0.05)
    sizes = []
    while not portion.is_least:
        with pytest.raises(ZeroDivisionError), portion.asked(portion.size):
            raise ZeroDivisionError
        sizes.append(portion.size)
    assert sizes == [25, 10]


def test_a_small_question_answered_quickly_tells_nothing_about_a_large_one() -> None:
    """Only one of about the size makes it grow; a small one that is slow makes it small."""
    clock = Clock()
    portion = Portion(100, least=10, aim_s=0.05, clock=clock)
    portion.size = 50
    with portion.asked(3):
        pass
    assert portion.size == 50
    with portion.asked(30):
        clock.now += 1
    assert portion.size == 15
