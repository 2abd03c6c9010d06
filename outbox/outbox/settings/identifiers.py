"""The schema's name as PostgreSQL takes it: checked once, quoted everywhere."""

import os
from typing import Final

from outbox.errors import SettingsError

MAX_IDENTIFIER_BYTES: Final = 63
"""PostgreSQL cuts longer names off without an error, so that two long names could mean one schema."""


def schema_identifier(name: str) -> str:
    """Return `name` as a quoted SQL identifier, ready to stand before a dot.

    Any name that PostgreSQL can hold is taken as it stands: spaces, quotes, dots, `%`, `$`, capital letters
    and non-ASCII letters included. A dot is part of the name, never a separator.

    Raises:
        SettingsError: the name is empty, longer than 63 bytes of UTF-8, holds NUL or a lone surrogate, or is
            reserved by PostgreSQL (`pg_…`, `information_schema`).
    """
    _check(name)
    return '"' + name.replace('"', '""') + '"'


def schema_literal(name: str) -> str:
    """Return `name` as a SQL string literal that reads the same under every `standard_conforming_strings`.

    Raises:
        SettingsError: as `schema_identifier`.
    """
    _check(name)
    quoted = "'" + name.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in name else quoted


def default_schema() -> str:
    """Return the schema where nobody names one: `OUTBOX_SCHEMA`, else "outbox"."""
    return os.environ.get("OUTBOX_SCHEMA") or "outbox"


def _check(name: str) -> None:
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise SettingsError("schema: the name is not valid Unicode text (it holds a lone surrogate)") from None
    if size == 0:
        raise SettingsError("schema: the name is empty; leave the setting out to get 'outbox'")
    if size > MAX_IDENTIFIER_BYTES:
        raise SettingsError(f"schema: the name is {size} bytes long, PostgreSQL's limit is {MAX_IDENTIFIER_BYTES}")
    if "\0" in name:
        raise SettingsError("schema: the name holds a NUL character, which PostgreSQL can't store")
    if name.startswith("pg_") or name == "information_schema":
        raise SettingsError("schema: names that start with 'pg_' and 'information_schema' belong to PostgreSQL")
