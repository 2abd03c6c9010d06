"""What ends a reason is told so that it can be typed in."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from uuid import UUID

import pytest

from outbox.explaining.remedies import REMEDIES, resolving, resuming
from outbox.operating.pausing import Pause, PauseScope
from outbox_schemas import Reason


@pytest.mark.parametrize(
    ("scope", "name", "words"),
    [
        (PauseScope.EVERYTHING, "", ["--all"]),
        (PauseScope.QUEUE, "mail", ["mail"]),
        (PauseScope.KIND, "mail.send", ["--kind", "mail.send"]),
        (PauseScope.TENANT, "a's; rm -rf", ["--tenant", "a's; rm -rf"]),
        ("tenant", "acme", ["--tenant", "acme"]),
    ],
)
def test_the_command_that_ends_a_pause_is_told(scope: PauseScope | str, name: str, words: list[str]) -> None:
    """Whatever is paused, and whatever it is called."""
    told = resuming(Pause(scope, name, "ada", "", datetime.now(UTC)))
    assert told.startswith("a person: `")
    assert told.endswith("`")
    assert shlex.split(told.split("`")[1]) == ["outbox", "queues", "resume", *words]


def test_a_scope_that_only_a_newer_release_knows_has_the_general_remedy() -> None:
    """No command is made up for it."""
    assert resuming(Pause("region", "eu", "ada", "", datetime.now(UTC))) == REMEDIES[Reason.PAUSED]


def test_the_command_that_settles_an_effect_is_told() -> None:
    """With the job and the effect, whatever that is called."""
    told = resolving(UUID(int=7), "a's; rm -rf")
    assert shlex.split(told.split("`")[1]) == ["outbox", "effects", "resolve", str(UUID(int=7)), "a's; rm -rf"]
