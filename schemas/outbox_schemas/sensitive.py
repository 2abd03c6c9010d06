"""The marker of sensitive fields, and where it stands in a type: `Annotated[str, Sensitive]`, at any depth.

Models, lists, tuples, sets, mappings, unions and `Annotated` are looked into. Anything else that holds a marker counts
as sensitive as a whole: a mask too many is a nuisance, one too few is a leak.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, GetCoreSchemaHandler, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

__all__ = ["SECRETS", "Field", "Sensitive", "elements", "fields_of", "holds_sensitive", "is_hidden", "pairs"]


_NO_TYPE = "Sensitive is a mark, not a type; write Annotated[str, Sensitive] (from typing import Annotated)"


class Sensitive:
    """Marks a value that no outlet may show: `card: Annotated[str, Sensitive]`, also inside lists, dicts, unions and
    nested models. The value is stored, and given to the handler, as it is.
    """

    def __class_getitem__(cls, kind: object) -> Any:
        """Refuse `Sensitive[str]`."""
        raise TypeError(_NO_TYPE)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Leave what is marked as it is. Refuse the mark in the place of a type."""
        if source is cls:
            raise TypeError(_NO_TYPE)
        return handler(source)


SECRETS: Final = (SecretStr, SecretBytes, Secret)
"""pydantic's own types for what is not to be shown. They count as marked."""


class Field(NamedTuple):
    """One field of a model: the name under which it is stored, its type, and whether it is marked as a whole."""

    stored: str
    annotation: Any
    marked: bool


def holds_sensitive(annotation: Any) -> bool:
    """Tell whether anything of this type may be sensitive, however deep inside."""
    return _holds(annotation) if _is_hashable(annotation) else _search(annotation, frozenset())


def is_hidden(annotation: Any) -> bool:
    """Tell whether a value of this type is sensitive as a whole; in a union, one such member is enough."""
    return any(
        _has_marker(member) or (holds_sensitive(member) and not _is_looked_into(member))
        for member in _members(annotation)
    )


def fields_of(model: type[BaseModel]) -> Mapping[str, Field]:
    """Return a model's fields as they are stored, by their attributes' names."""
    return _fields(model)


def elements(annotation: Any, count: int) -> list[Any]:
    """Return the types of a sequence's or set's elements, one for each of `count`."""
    members = [(get_origin(member), get_args(member)) for member in _members(annotation)]
    for origin, arguments in members:
        if origin is tuple and Ellipsis not in arguments and len(arguments) == count:
            return list(arguments)
    return [_union([kind for origin, arguments in members if _is(origin, Collection) for kind in arguments])] * count


def pairs(annotation: Any) -> tuple[Any, Any]:
    """Return the types of a mapping's keys and values."""
    found = [get_args(member) for member in _members(annotation) if _is(get_origin(member), Mapping)]
    return _union([kinds[0] for kinds in found]), _union([kind for kinds in found for kind in kinds[1:]])


def _members(annotation: Any) -> list[Any]:
    """Return the members of a union, or the type alone; names that only stand for a type are replaced by it."""
    origin = get_origin(annotation)
    if origin is None:
        meant = getattr(annotation, "__supertype__", annotation)  # of NewType
        meant = _value_of(meant) if hasattr(meant, "__value__") else meant
        return [annotation] if meant is annotation or isinstance(annotation, type) else _members(meant)
    if origin is Annotated and not _has_marker(annotation):
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [inner for member in get_args(annotation) for inner in _members(member)]
    return [annotation]


def _value_of(alias: Any) -> Any:
    """Return what a name stands for that the `type` statement has given, or its older form, which may quote it."""
    meant = alias.__value__
    if not isinstance(meant, str):
        return meant
    try:
        return eval(meant, vars(sys.modules[alias.__module__]))  # noqa: S307 - as the annotation that it is
    except Exception:  # noqa: BLE001 - it leads nowhere: nobody knows what it holds
        return Annotated[Any, Sensitive]


def _has_marker(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and _marks(get_args(annotation)[1:])


def _marks(metadata: Iterable[Any]) -> bool:
    return any(item is Sensitive or isinstance(item, Sensitive) for item in metadata)


def _is_looked_into(annotation: Any) -> bool:
    return _is(annotation, BaseModel) or _is(annotation, SECRETS) or _is(get_origin(annotation), (Collection, *SECRETS))


@cache
def _holds(annotation: Any) -> bool:
    return _search(annotation, frozenset())


def _search(annotation: Any, seen: frozenset[Any]) -> bool:
    if hasattr(annotation, "__value__"):  # a name, which may stand for something that holds itself
        if annotation in seen:
            return False
        seen |= {annotation}
    for member in _members(annotation):
        if _has_marker(member) or _is(member, SECRETS) or _is(get_origin(member), SECRETS):
            return True
        if isinstance(member, type) and member not in seen and _search_class(member, seen | {member}):
            return True
        if any(_search(argument, seen) for argument in get_args(member)):
            return True
        alias = get_origin(member)
        # What a name with parameters stands for: looked into for markers alone, so a value of it is hidden as a whole.
        if hasattr(alias, "__value__") and alias not in seen and _search(_value_of(alias), seen | {alias}):
            return True
    return False


def _search_class(kind: type[Any], seen: frozenset[Any]) -> bool:
    if issubclass(kind, BaseModel):
        return any(field.marked or _search(field.annotation, seen) for field in _fields(kind).values())
    # Dataclasses, typed dicts (of either typing module) and named tuples.
    if dataclasses.is_dataclass(kind) or hasattr(kind, "__total__") or hasattr(kind, "_fields"):
        try:
            hints = get_type_hints(kind, include_extras=True)
        except Exception:  # noqa: BLE001 - a forward reference that leads nowhere: nobody knows what it holds
            return True
        return any(_search(hint, seen) for hint in hints.values())
    return False


@cache
def _fields(model: type[BaseModel]) -> Mapping[str, Field]:
    return {
        name: Field(_stored_name(name, info), info.annotation, _marks(info.metadata))
        for name, info in model.model_fields.items()
    }


def _stored_name(name: str, info: FieldInfo) -> str:
    return info.serialization_alias or info.alias or name


def _is(kind: Any, wanted: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, wanted)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # as Annotated[str, ["a list"]]
        return False
    return True


def _union(kinds: list[Any]) -> Any:
    return Union[tuple(kinds)] if kinds else Any  # noqa: UP007 - made at run time
