"""The collector of a process that is ours alone: it leaves the start alone, and still finds what becomes garbage."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

import outbox_consumer.cli
import outbox_relay.cli

_TELL = """
import gc, weakref
import sqlalchemy
from outbox.processes.collecting import set_start_aside
set_start_aside()
class Cycle:
    pass
one = Cycle()
one.itself, gone = one, weakref.ref(one)
del one
spare = [[] for _ in range(2 * gc.get_threshold()[0])]
print(gc.get_freeze_count() > 10_000, 700 < gc.get_threshold()[0] <= 2000, gone() is None)
"""


def test_the_start_is_set_aside_and_a_later_cycle_is_found() -> None:
    """Nothing that was there is searched again; a cycle that is made afterwards goes by itself, after a bounded number
    of objects.
    """
    found = subprocess.run([sys.executable, "-c", _TELL], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True"] * 3


@pytest.mark.parametrize("chosen", [0, 50_000])
def test_what_a_handlers_module_has_chosen_stays(chosen: int) -> None:
    """A collector that was turned off, or told to look less often still, is left so."""
    told = "import gc; from outbox.processes.collecting import set_start_aside"
    told += f"; gc.set_threshold({chosen}); set_start_aside(); print(gc.get_threshold()[0])"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert int(found.stdout) == chosen


@pytest.mark.parametrize(
    ("module", "command", "make", "arguments"),
    [(outbox_relay.cli, "relay", "make_relay", []), (outbox_consumer.cli, "consume", "make_consumer", ["any"])],
)
def test_both_commands_set_their_start_aside_before_they_work(
    monkeypatch: pytest.MonkeyPatch, module: Any, command: str, make: str, arguments: list[str]
) -> None:
    """A relay and a consumer that were started as commands do it, once all is loaded."""
    done: list[str] = []
    monkeypatch.setenv("OUTBOX_DATABASE_URL", "postgresql://nowhere.invalid/x")
    monkeypatch.setattr(module, "configure", lambda _settings: None)
    monkeypatch.setattr(module, make, lambda *_: done.append("loaded"))
    monkeypatch.setattr(module, "set_start_aside", lambda: done.append("aside"))
    monkeypatch.setattr(module, "serve", lambda *_: done.append("serves") or 0)
    found = CliRunner().invoke(getattr(module, command), arguments, standalone_mode=False, catch_exceptions=False)
    assert found.return_value == 0
    assert done == ["loaded", "aside", "serves"]
