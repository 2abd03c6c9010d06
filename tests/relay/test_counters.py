"""What relays count has a name that the counters know."""

from __future__ import annotations

import ast
from pathlib import Path

import outbox_relay
from outbox_relay.counters import NAMES


def test_every_step_counts_under_a_name_that_there_is() -> None:
    """A name that isn't there raises, at each turn of the step that counts, and ends what it was about to do."""
    added = {
        node.args[0].value
        for file in Path(outbox_relay.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("counters.add") and node.args
        if isinstance(node.args[0], ast.Constant)
    }
    assert {"released", "put_back_for_keys"} <= added
    assert added <= set(NAMES)
