"""Random lives of keyed jobs from two sessions on the real statements."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from support.database import Database
from support.keyed_machine import KeyedLives


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_random_lives_keep_what_keys_promise(database: Database) -> None:
    """Whatever two sessions do, committed or not: never too many leases, never out of order, nobody left behind."""
    KeyedLives.database = database
    run_state_machine_as_test(
        KeyedLives,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
