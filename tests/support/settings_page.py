"""The page of all settings, made from the classes that hold them; `python tests/support/settings_page.py` writes it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from outbox.settings import Settings
from outbox.settings.layers import outside_names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
HEAD = """# All settings

Every setting of the commands, with its unit, default and range. [Operating](operating.md#settings) says how they are
given, and which matter first; what a handler's class may say stands in
[writing handlers](handlers.md#what-a-class-may-say). This page is made from the source by
`python tests/support/settings_page.py`: change the text there.
"""
_TABLE = "| in the file | in the environment | default | |\n|---|---|---|---|\n"


def page() -> str:
    """Return the page as it has to stand."""
    rows: dict[str, list[str]] = {}
    for place, variable, field, about in _settings(Settings):
        rows.setdefault(place.rpartition(".")[0], []).append(_row(place, variable, field, about))
    parts = [HEAD]
    for section, lines in rows.items():
        parts.append(f"## {f'`[{section}]`' if section else 'Outside any table'}\n\n{_TABLE}" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return what stands below each field of a class, in it or in one that it inherits from.

    Pydantic could read it too, each time that the class is made: every command would read its own source at its start.
    """
    found = {}
    for holder in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        [declared] = ast.parse(inspect.getsource(holder)).body
        assert isinstance(declared, ast.ClassDef)
        for field, text in pairwise(declared.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(about))):
                    found[name] = about
    return found


def _settings(model: type[BaseModel]) -> Iterator[tuple[str, str, Any, str]]:
    for path, (place, variable) in outside_names(model).items():
        holder: Any = model
        *sections, name = path.split(".")
        for section in sections:
            holder = holder.model_fields[section].annotation
        yield place, variable, holder.model_fields[name], descriptions(holder)[name]


def _row(place: str, variable: str, field: Any, about: str) -> str:
    about = re.sub(r"\s+", " ", about.strip())
    if get_origin(field.annotation) is Literal:
        about += f" {' or '.join(f'`{choice}`' for choice in get_args(field.annotation))}."
    return f"| `{place.rpartition('.')[2]}` | `{variable}` | {_default(field, about)} | {about} |"


def _default(field: Any, about: str) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or value == {} or "Unset:" in about:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
