"""What the page on payloads shows runs as it stands, and its settings are settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from outbox.retention.erasing import rules_of
from outbox.settings import load
from outbox_consumer.contract.registry import Registry

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "payloads.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the page's first block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_lifts_masks_and_is_a_handler() -> None:
    """The class reads both versions and shows no marked value; a consumer takes its handler."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block("python"), "payloads.md", "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    payload = names["Refund"].from_document('{"order_id": 1, "cents": 2, "iban": "DE0212", "token": "tok-1234"}', 1)
    assert payload.currency == "EUR"
    assert "DE0212" not in repr(payload)
    assert "tok-1234" in payload.to_document().text
    abilities = Registry([names["RefundHandler"]()]).abilities
    assert [(ability.kind, ability.version) for ability in abilities] == [("refund", 1), ("refund", 2)]


def test_the_settings_are_accepted(tmp_path: Path) -> None:
    """The TOML makes the rules that the page tells of."""
    file = tmp_path / "outbox.toml"
    file.write_text(block("toml"))
    rules = {(rule.kind, rule.state.value): rule for rule in rules_of(load(file, env={}).retention)}
    day = 86_400.0
    assert (rules["*", "succeeded"].keep_s, rules["*", "succeeded"].payload_keep_s) == (30 * day, 7 * day)
    assert (rules["refund", "succeeded"].keep_s, rules["refund", "failed"].keep_s) == (3650 * day, None)
