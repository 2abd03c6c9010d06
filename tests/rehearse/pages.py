"""What a runbook's page tells its reader to do: the commands of each section, as they stand there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "Section", "commands_of", "sections", "slugs"]

FOLDER = Path(__file__).parents[2] / "docs" / "runbooks"
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """A heading, and the blocks of commands under it."""

    heading: str
    blocks: tuple[str, ...]


def slugs() -> list[str]:
    """Return the names of all runbooks."""
    return sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")


def sections(slug: str) -> list[Section]:
    """Return the sections of a page in their order, those without commands included."""
    text = (FOLDER / f"{slug}.md").read_text(encoding="utf-8")
    _, *parts = _HEADING.split(text)
    return [
        Section(heading.strip(), tuple(_BLOCK.findall(body)))
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def commands_of(slug: str) -> list[str]:
    """Return each command line of a page, its continuation lines joined, without comments."""
    text = "".join(_BLOCK.findall((FOLDER / f"{slug}.md").read_text(encoding="utf-8")))
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in (re.sub(r"\s+# .*$", "", line).strip() for line in lines) if line and line[0] != "#"]
