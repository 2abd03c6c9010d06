"""The tables of settings and of what a handler class may say are those of the code."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from outbox_consumer import Handler, RetryPolicy
from support.settings_page import PAGE, page

HANDLERS = (Path(__file__).resolve().parents[2] / "docs" / "handlers.md").read_text(encoding="utf-8")


def test_the_page_of_settings_is_that_of_the_code() -> None:
    """Names, defaults and ranges; where it differs, make it anew."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/support/settings_page.py"


def test_the_guide_names_each_attribute_with_its_default() -> None:
    """Each class variable of a handler stands in the table, with the value that it has."""
    table = HANDLERS.split("## What a class may say")[1]
    told: dict[str, Any] = {
        name: eval(default, {"timedelta": timedelta, "RetryPolicy": RetryPolicy})  # noqa: S307 - our own page
        for name, default in re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE)
    }
    names = {name for base in Handler.__mro__ for name in vars(base).get("__annotations__", {})} - {"payload_type"}
    assert told == {name: getattr(Handler, name) for name in names if not name.startswith("_")}
