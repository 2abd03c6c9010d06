"""What may be said of a value that a class refuses: where, and which rule; never the value."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails
from pydantic_core.core_schema import ErrorType

__all__ = ["Unchangeable", "reasons"]

_MOST = 5
_PLACE_CHARACTERS = 200
# Their messages quote the value or are written by the class's own validators, which may quote it.
_QUOTING = frozenset(
    {
        "assertion_error",
        "bytes_invalid_encoding",
        "get_attribute_error",
        "iteration_error",
        "mapping_type",
        "union_tag_invalid",
        "uuid_parsing",
        "value_error",
    }
)
_FROZEN = frozenset({"frozen_field", "frozen_instance"})
_TELLING = frozenset(get_args(ErrorType)) - _QUOTING


class Unchangeable(BaseModel):
    """A model whose values stay as they are, and whose errors quote none: not that of a refused change either."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a change as pydantic does, whose own error quotes what was to be put there."""
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            [found, *_] = error.errors(include_url=False, include_context=False, include_input=False)
            if found["type"] not in _FROZEN:
                raise  # of a class that may be changed after all: it quotes nothing
            detail = InitErrorDetails(type=found["type"], loc=found["loc"], input=None)
            raise ValidationError.from_exception_data(error.title, [detail], hide_input=True) from None


def reasons(error: ValidationError, root: str = "payload") -> list[tuple[str, str]]:
    """Return up to five refusals, each as the path of the field and the rule that it broke.

    The text of a validator of the class's own is left out, since nobody knows what it repeats; its type stands for it.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST]
    return [(_place(root, item["loc"]), _rule(item["type"], item["msg"])) for item in found]


def _place(root: str, location: tuple[Any, ...]) -> str:
    return ".".join((root, *map(str, location)))[:_PLACE_CHARACTERS]


def _rule(kind: str, message: str) -> str:
    return message if kind in _TELLING else f"refused by a rule of its class ({kind})"
