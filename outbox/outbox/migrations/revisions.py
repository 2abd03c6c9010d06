"""The known revisions, the SQL of each, and which of them a database still lacks."""

import re
import uuid
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from alembic.script import Script, ScriptDirectory

from outbox.migrations.errors import MigrationError, SchemaTooNew
from outbox.settings.identifiers import schema_identifier, schema_literal

VERSION_TABLE: Final = "outbox_schema_version"
HERE: Final = Path(__file__).parent
_DOLLAR_TAG: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z_0-9]*)?\$")


@dataclass(frozen=True)
class Upgrade:
    """What an upgrade did. `applied` is empty when the schema was up to date already."""

    schema: str
    before: str | None
    after: str | None
    applied: tuple[str, ...]

    def then(self, later: "Upgrade") -> "Upgrade":
        """Return this upgrade and the one that came after it as one."""
        return Upgrade(self.schema, self.before, later.after, self.applied + later.applied)


@cache
def script_directory() -> ScriptDirectory:
    """Return Alembic's view of the packaged revisions; no ini file and no `env.py` are involved."""
    return ScriptDirectory(str(HERE))


def head() -> str:
    """Return the newest revision that this release knows."""
    found = script_directory().get_current_head()
    if found is None:
        raise MigrationError("this installation holds no migrations: the package is incomplete, install it again")
    return found


def pending(current: str | None, target: str = "head") -> list[Script]:
    """Return the revisions to apply, oldest first, to bring a database from `current` to `target`.

    A database that is past `target` already needs nothing: upgrades never go back.

    Raises:
        SchemaTooNew: `current` is a revision that this release doesn't know.
        MigrationError: `target` is unknown.
    """
    line = list(reversed(list(script_directory().walk_revisions())))
    known = [script.revision for script in line]
    goal = head() if target == "head" else target
    if current is not None and current not in known:
        raise SchemaTooNew(
            f"the schema is at revision {current}, which this release does not know "
            f"(its newest is {head()}): a newer release upgraded it; update this one"
        )
    if goal not in known:
        raise MigrationError(f"there is no revision {goal!r}; the known ones are {', '.join(known)}")
    done = 0 if current is None else known.index(current) + 1
    return line[done : known.index(goal) + 1]


def revision_sql(script: Script, schema: str) -> str:
    """Return one revision's complete DDL for `schema`."""
    parts: list[str] = []
    script.module.upgrade(apply=lambda name: parts.append(revision_file_sql(name, schema)))
    return "\n".join(parts)


def revision_file_sql(name: str, schema: str) -> str:
    """Return the DDL in one of the revisions' SQL files."""
    return render(HERE / "versions" / name, schema)


def version_table_sql(schema: str) -> str:
    """Return the DDL of our own version table."""
    return render(HERE / "version_table.sql", schema)


def render(path: Path, schema: str, **more: str) -> str:
    """Fill the schema's name (and `more`) into a SQL file, in one pass, whatever the name holds."""
    template = path.read_text(encoding="utf-8")
    values = {"schema": schema_identifier(schema), "schema_literal": schema_literal(schema), **more}
    # A name such as `a$body$b` would end a dollar-quoted body early: such a tag gives way to another.
    for tag in set(_DOLLAR_TAG.findall(template)):
        if tag in schema:
            template = template.replace(tag, f"$q{uuid.uuid4().hex}$")
    # Comments stay as they are: a line feed in a name would end one early.
    pattern = re.compile(r"--[^\n]*|\{(" + "|".join(values) + r")\}")
    return pattern.sub(lambda found: values[found[1]] if found[1] else found[0], template)


def lock_key(schema: str) -> int:
    """Return the advisory lock's key for migrators of this schema: a signed 64-bit integer, ever the same."""
    digest = blake2b(f"outbox-relay migrations: {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
