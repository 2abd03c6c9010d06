"""What the schema should look like, what differs from it, and how to say so. Pure: no database here."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from outbox.migrations.revisions import HERE
from outbox.settings.identifiers import schema_identifier, schema_literal

EXPECTED: Final = HERE / "expected.json"
_PLACEHOLDER: Final = re.compile(r"\{(schema|schema_literal)\}")
_SHOWN: Final = 120

Description: TypeAlias = Mapping[str, str]
"""Definition by object; an object is a kind and a name, such as `column jobs.id`."""


@dataclass(frozen=True)
class Difference:
    """One object that is not as expected; `str()` gives one line."""

    kind: Literal["missing", "unexpected", "different"]
    subject: str
    expected: str | None = None
    live: str | None = None

    def __str__(self) -> str:
        if self.expected is None or self.live is None:
            return f"{self.kind}: {self.subject}"
        start = _first_difference(self.expected, self.live)
        wanted, found = _excerpt(self.expected, start), _excerpt(self.live, start)
        return f"{self.kind}: {self.subject}: expected {wanted}, found {found}"


@cache
def _packaged() -> tuple[str, dict[str, str]]:
    data = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return data["revision"], data["objects"]


def expected_revision() -> str:
    """Return the revision that the packaged description was made at."""
    return _packaged()[0]


def expected_schema(schema: str = "outbox") -> dict[str, str]:
    """Return how the newest revision looks in `schema`."""
    names = {"schema": schema_identifier(schema), "schema_literal": schema_literal(schema)}
    return {
        subject: _PLACEHOLDER.sub(lambda found: names[found.group(1)], definition)
        for subject, definition in _packaged()[1].items()
    }


def table_names() -> frozenset[str]:
    """Return the names of all our tables, the version table among them."""
    return frozenset(subject.removeprefix("table ") for subject in _packaged()[1] if subject.startswith("table "))


def compare(expected: Description, live: Description, *, shared: bool = False) -> list[Difference]:
    """Return what is missing, unexpected or different, in the objects' order.

    A missing or unexpected table is one difference, whatever hangs on it. With `shared`, the schema holds
    other people's objects too, and only what hangs on our own tables can be unexpected.
    """
    found: list[Difference] = []
    for subject in sorted(expected.keys() | live.keys()):
        wanted, actual = expected.get(subject), live.get(subject)
        table = _table_of(subject)
        if wanted == actual:
            continue
        if actual is None:
            if table is None or table in live:
                found.append(Difference("missing", subject, expected=wanted))
        elif wanted is None:
            hidden = table not in expected if table is not None else shared
            if not hidden:
                found.append(Difference("unexpected", subject, live=actual))
        else:
            found.append(Difference("different", subject, wanted, actual))
    return found


def _table_of(subject: str) -> str | None:
    """Return the table, as a subject, that a column or the like hangs on; None for tables and functions."""
    kind, _, name = subject.partition(" ")
    return None if kind in {"table", "function"} else f"table {name.split('.', 1)[0]}"


def _first_difference(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _excerpt(text: str, around: int) -> str:
    begin = max(0, around - _SHOWN // 3) if len(text) > _SHOWN else 0
    piece = " ".join(text[begin : begin + _SHOWN].split())
    return repr(("… " if begin else "") + piece + (" …" if begin + _SHOWN < len(text) else ""))
