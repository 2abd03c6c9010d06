"""Who has come to a queue just now: those without anything due before, for as long as what was out takes."""

from __future__ import annotations

import pytest

from outbox.policy import joiners
from outbox.policy.joiners import GONE_S, JOINING_S, Joiners


def test_who_comes_is_new_for_a_while_and_who_was_there_is_not() -> None:
    """The first look shows those who were there; who comes later is new until all is through that was out then."""
    line = Joiners()
    assert line.seen(["old"], 0.0, whole=True) == set()
    assert line.seen(["old", "new"], 1.0, whole=True) == {"new"}
    assert line.seen(["old", "new"], 1.0 + JOINING_S / 2, whole=True) == {"new"}
    assert line.seen(["old", "new"], 1.0 + JOINING_S, whole=True) == set()


def test_who_had_nothing_due_meanwhile_comes_anew() -> None:
    """One look without a tenant is enough where it shows all; where it doesn't, only time tells."""
    line = Joiners()
    line.seen(["old", "small"], 0.0, whole=True)
    line.seen(["old"], 0.1, whole=True)
    assert line.seen(["old", "small"], 0.2, whole=True) == {"small"}
    partly = Joiners()
    partly.seen(["old", "small"], 0.0, whole=False)
    for at in (0.1, GONE_S):
        partly.seen(["old"], at, whole=False)
    assert partly.seen(["old", "small"], 0.1 + GONE_S, whole=False) == {"small"}


def test_nobody_is_new_after_a_while_without_a_look() -> None:
    """Who was there all the time, unseen, must not seem to have come."""
    line = Joiners()
    line.seen(["old"], 0.0, whole=True)
    assert line.seen(["old", "other"], 0.1 + GONE_S, whole=True) == set()
    assert line.seen(["old", "new"], 0.2 + GONE_S, whole=True) == {"new"}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit all is forgotten, and the next look takes everybody for being there already."""
    monkeypatch.setattr(joiners, "MOST", 3)
    line = Joiners()
    line.seen(["a", "b"], 0.0, whole=False)
    assert line.seen(["c", "d"], 1.0, whole=False) == set()
    assert line._since.keys() == line._seen.keys() == {"c", "d"}
