"""The state machine: the table, the statements' own words, and random lives against a model."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from outbox_schemas import TRANSITIONS, Event, JobState
from support.database import Database
from support.machine import Installation

_MOVE = re.compile(r"(?P<events>\w+(?:, \w+)*): (?P<sources>\w+(?: \| \w+)*) -> (?P<targets>\w+(?: \| \w+)*)")


def declared_moves() -> dict[tuple[JobState, Event], frozenset[JobState]]:
    """Return the moves that the statements' headers declare."""
    moves: dict[tuple[JobState, Event], frozenset[JobState]] = {}
    for file in files("outbox").joinpath("sql").iterdir():
        (line,) = re.findall(r"^-- Transition: (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        if re.match(r"none( \(.*\))?$", line):
            continue
        for move in re.sub(r" \(.*\)$", "", line).split("; "):
            found = _MOVE.fullmatch(move)
            assert found is not None, f"{file.name}: {line}"
            for event in found["events"].split(", "):
                for source in found["sources"].split(" | "):
                    moves[JobState(source), Event(event)] = frozenset(map(JobState, found["targets"].split(" | ")))
    return moves


def test_the_statements_make_exactly_the_tables_moves() -> None:
    """Each legal move has its statement, and no statement declares another."""
    assert declared_moves() == dict(TRANSITIONS)


_SETS_STATE = r"UPDATE \{schema\}\.jobs AS \w+\s+SET\s+\(?state\b[^=]*= (?:\(\s+SELECT )?([^\n]+)"


def test_only_declared_statements_write_the_state() -> None:
    """A statement that sets a job's state declares a transition, to those states."""
    for file in files("outbox").joinpath("sql").iterdir():
        text = file.read_text(encoding="utf-8")
        body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
        written = {state for setting in re.findall(_SETS_STATE, body) for state in re.findall(r"'(\w+)'", setting)}
        (line,) = re.findall(r"^-- Transition: (.*)$", text, re.MULTILINE)
        targets = [] if line.startswith("none") else re.findall(r" -> ([\w |]+?)(?=;| \(|$)", line)
        assert written == {target for some in targets for target in some.split(" | ")}, file.name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_random_lives_match_the_model(database: Database) -> None:
    """Any sequence of moves, late and stale ones included, does what the model says and keeps every invariant."""
    Installation.database = database
    run_state_machine_as_test(
        Installation,
        settings=settings(
            max_examples=50,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
