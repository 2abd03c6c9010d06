"""Keeps a host's `alembic revision --autogenerate` and `alembic check` from seeing our tables as removed."""

from collections.abc import Callable, MutableMapping
from typing import Literal, TypeAlias

from outbox.migrations.description import table_names
from outbox.settings.identifiers import schema_identifier

Kind: TypeAlias = Literal[
    "schema", "table", "column", "index", "unique_constraint", "foreign_key_constraint", "check_constraint"
]
Parents: TypeAlias = MutableMapping[Literal["schema_name", "table_name", "schema_qualified_table_name"], str | None]
IncludeName: TypeAlias = Callable[[str | None, Kind, Parents], bool]


def include_name(
    schema: str = "outbox",
    *,
    also: IncludeName | None = None,
    default_schema: str = "public",
    shared: bool | None = None,
) -> IncludeName:
    """Return a hook for `context.configure(include_name=...)` in a host's `env.py`.

    With a schema of our own, the whole schema is left out. In a schema that the host uses too, only our
    tables are, by name. `shared` says which; None takes it as shared exactly when `schema` is
    `default_schema`, the one that the host's connection finds first (`SELECT current_schema()`). `also` is
    the host's own hook: what ours lets through is asked of it.

    Raises:
        SettingsError: `schema` is not a name that PostgreSQL can hold.
    """
    schema_identifier(schema)
    ours = table_names()
    by_table = schema == default_schema if shared is None else shared
    # Alembic says None for the schema that it reached without a name.
    spellings = {schema, None} if schema == default_schema else {schema}

    def hook(name: str | None, kind: Kind, parents: Parents) -> bool:
        if kind == "schema":
            hidden = not by_table and name in spellings
        elif kind == "table":
            hidden = parents.get("schema_name") in spellings and (not by_table or name in ours)
        else:
            hidden = False
        return not hidden and (also is None or also(name, kind, parents))

    return hook
