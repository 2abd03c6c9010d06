"""The layers that settings come from, and the one line that is said when a value is refused.

Every value keeps the name of its source, so that an error can say which file or variable to change.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from outbox.errors import SettingsError
from outbox.texts.masking import printable

__all__ = [
    "Layer",
    "Sourced",
    "environment_layer",
    "explain",
    "merge",
    "nested",
    "outside_names",
    "override_layer",
    "toml_layer",
]

PREFIX = "OUTBOX_"
MAX_FILE_BYTES = 1_048_576

# Variables of ours that aren't settings, and the beginnings of whole families of them.
_OTHER_VARIABLES = frozenset({"OUTBOX_CONFIG"})
_FAMILIES = ("OUTBOX_BARRIER", "OUTBOX_TEST_")
# The file's and the environment's name of a field, where it differs from the field's own.
_OUTSIDE_NAMES = {"schema_name": "schema"}


class Sourced(NamedTuple):
    """A value and the words that say where it was set, like `relay.batch in outbox.toml`."""

    value: Any
    source: str


Layer = dict[str, Sourced]
"""What one source sets, by the field's dotted path."""


def toml_layer(path: Path, model: type[BaseModel]) -> Layer:
    """Return what the TOML file sets.

    Raises:
        SettingsError: it can't be read or parsed, or holds a key that isn't known.
    """
    fields = {_outside(field): field for field in _fields(model)}
    sections = {field.partition(".")[0] for field in fields if "." in field}
    layer: Layer = {}
    for key, value in _flat(_read_toml(path), sections):
        if key in sections:
            raise SettingsError(f"{key} in {path} must be a table of settings, [{key}]")
        if key not in fields:
            raise SettingsError(f"{printable(key, 100)} in {path} is not a setting{_suggestion(key, fields)}")
        layer[fields[key]] = Sourced(value, f"{key} in {path}")
    return layer


def environment_layer(env: Mapping[str, str], model: type[BaseModel]) -> Layer:
    """Return what the environment sets. An empty variable counts as unset.

    A variable `OUTBOX_…` that isn't known is refused only if it looks like a slip of a known one: others
    may well belong to someone else (Kubernetes makes `OUTBOX_RELAY_PORT` for a service named outbox-relay).
    """
    fields = _fields(model)
    known = {_variable(field): field for field in fields}
    layer: Layer = {}
    for name, text in env.items():
        if name in known and text.strip():
            value = _from_text(text.strip(), fields[known[name]])
            layer[known[name]] = Sourced(value, f"{name} in the environment")
        elif name.startswith(PREFIX) and name not in known:
            _refuse_slip(name, (*known, *_OTHER_VARIABLES))
    return layer


def override_layer(overrides: Mapping[str, Any], model: type[BaseModel]) -> Layer:
    """Return what the command line sets: fields by name, sections as mappings; None counts as unset."""
    fields = _fields(model)
    sections = {field.partition(".")[0] for field in fields if "." in field}
    layer: Layer = {}
    for field, value in _flat(overrides, sections):
        if field not in fields:
            raise SettingsError(f"{field} on the command line is not a setting{_suggestion(field, fields)}")
        if value is not None:
            layer[field] = Sourced(value, f"{_outside(field)} on the command line")
    return layer


def merge(layers: Iterable[Layer]) -> Layer:
    """Merge layers, a later one over an earlier one; what a layer doesn't set stays as it was."""
    merged: Layer = {}
    for layer in layers:
        merged |= layer
    return merged


def nested(layer: Layer) -> dict[str, Any]:
    """Return the layer's values as the model takes them."""
    values: dict[str, Any] = {}
    for field, sourced in layer.items():
        section, dot, name = field.rpartition(".")
        (values.setdefault(section, {}) if dot else values)[name] = sourced.value
    return values


def explain(error: ValidationError, model: type[BaseModel], layer: Layer) -> SettingsError:
    """Turn a refusal into one line: the setting's source, the limit, and the value if it is no secret."""
    first, *others = error.errors(include_url=False, include_context=False)
    location = [str(item) for item in first["loc"]]
    problem = re.sub(r"^(Value error, |Input )", "", first["msg"]).replace("should ", "must ", 1)
    more = f" ({len(others)} more settings are refused)" if others else ""
    for field in (".".join(location[:2]), location[0] if location else ""):
        if field in layer:
            nature = _nature(layer[field].value, _fields(model)[field])
            inside = location[len(field.split(".")) :]
            place = f" at {printable('.'.join(inside), 200)}" if inside else ""
            return SettingsError(f"{layer[field].source}{place}: {problem}; it is {nature}{more}")
    # A rule between settings: say where those that it names were set.
    sources = [sourced.source for field, sourced in layer.items() if re.search(rf"\b{re.escape(field)}\b", problem)]
    return SettingsError(f"{problem}{' [' + ', '.join(sources) + ']' if sources else ''}{more}")


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return each field's dotted path and its type, without `None`."""
    fields: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        kind: Any = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields |= {f"{name}.{inner}": inner_kind for inner, inner_kind in _fields(kind).items()}
            continue
        if NoneType in get_args(kind):
            kind = next(item for item in get_args(kind) if item is not NoneType)
        if hasattr(kind, "__metadata__"):  # Annotated[int, …]
            kind = get_args(kind)[0]
        fields[name] = kind
    return fields


def outside_names(model: type[BaseModel]) -> dict[str, tuple[str, str]]:
    """Return, by each setting's dotted path, its names in the file (`relay.batch`) and in the environment."""
    return {field: (_outside(field), _variable(field)) for field in _fields(model)}


def _outside(field: str) -> str:
    return _OUTSIDE_NAMES.get(field, field)


def _variable(field: str) -> str:
    return PREFIX + _outside(field).replace(".", "_").upper()


def _flat(values: Mapping[str, Any], sections: set[str]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        if key in sections and isinstance(value, Mapping):
            flat += [(f"{key}.{inner}", inner_value) for inner, inner_value in value.items()]
        else:
            flat.append((key, value))
    return flat


_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _from_text(text: str, kind: Any) -> Any:
    """Turn a variable's text into what its field takes; the model refuses what can't be turned."""
    if getattr(kind, "__origin__", None) is tuple:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    if kind is bool:
        return _TRUTHS.get(text.lower(), text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _refuse_slip(name: str, known: Iterable[str]) -> None:
    if name in _OTHER_VARIABLES or name.startswith(_FAMILIES):
        return
    # Without the prefix that all share, which would make everything look alike.
    by_rest = {item.removeprefix(PREFIX): item for item in known}
    near = difflib.get_close_matches(name.removeprefix(PREFIX)[:64], by_rest, n=1, cutoff=0.85)
    if near:
        raise SettingsError(f"{printable(name)} in the environment is not a setting; did you mean {by_rest[near[0]]}?")


def _suggestion(key: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(key[:64], names, n=1, cutoff=0.6)
    if not near:
        near = [name for name in names if name.rpartition(".")[2] == key.rpartition(".")[2]][:1]
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(names))}"


def _nature(value: Any, kind: Any) -> str:
    """Describe a value: itself where it is harmless and short, else what sort of thing it is."""
    if kind is not SecretStr and isinstance(value, bool | int | float | str):
        return printable(repr(value), 60)
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list | tuple) else f"of type {type(value).__name__}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"the settings file {path} can't be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError(f"the settings file {path} has more than {MAX_FILE_BYTES} bytes; is it the right file?")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"the settings file {path} is not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:  # also a number of more digits than Python reads
        # Only the place: the message may quote the text there, which may be a password without its quotes.
        place = re.search(r"\(at [^()]*\)$", str(error))
        raise SettingsError(f"the settings file {path} is not TOML{' ' + place.group() if place else ''}") from None
