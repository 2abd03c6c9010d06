"""Schema names: what PostgreSQL can hold passes, quoted; what it can't is refused with a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from outbox.errors import SettingsError
from outbox.settings.identifiers import schema_identifier, schema_literal


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("outbox", '"outbox"'),
        ('a"b', '"a""b"'),
        ("a.b %s $x$", '"a.b %s $x$"'),
        ("é" * 31, '"' + "é" * 31 + '"'),
    ],
)
def test_legal_names_are_quoted(name: str, quoted: str) -> None:
    """Every legal name comes back as one quoted identifier."""
    assert schema_identifier(name) == quoted


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        ("a" * 64, "64 bytes"),
        ("é" * 32, "64 bytes"),
        ("a\0b", "NUL"),
        ("pg_x", "belong to PostgreSQL"),
        ("information_schema", "belong to PostgreSQL"),
        ("\ud800", "surrogate"),
    ],
)
def test_other_names_are_refused(name: str, reason: str) -> None:
    """What PostgreSQL would cut, refuse or keep for itself is refused here, with the reason."""
    with pytest.raises(SettingsError, match=reason):
        schema_identifier(name)


LEGAL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=15)


@given(name=LEGAL.filter(lambda name: not name.startswith("pg_")))
def test_quoting_can_be_undone(name: str) -> None:
    """No name breaks out of its quotes."""
    assert schema_identifier(name)[1:-1].replace('""', "\0").count('"') == 0
    assert schema_identifier(name)[1:-1].replace('""', '"') == name


def test_the_server_reads_back_the_same_literal(engine: Engine) -> None:
    """Quotes, backslashes and percent signs survive a literal, whatever a backslash means to the server."""
    name = "it's \\ 100% {schema} :x"
    with engine.connect() as connection:
        for setting in ("on", "off"):
            connection.execute(text(f"SET standard_conforming_strings = {setting}; SET escape_string_warning = off"))
            found = connection.exec_driver_sql(
                f"SELECT {schema_literal(name)}", execution_options={"no_parameters": True}
            )
            assert found.scalar_one() == name
