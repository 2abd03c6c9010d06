"""What a payload class makes of the names that the contract declares: a field in the place of a setting leaves that at
its default, without a word, and what is no method can't be called when a job is written.
"""

from __future__ import annotations

from pydantic import BaseModel

from outbox_schemas.errors import PayloadError

__all__ = ["check_overridden"]


def check_overridden(cls: type[BaseModel], base: type[BaseModel]) -> None:
    """Raise `PayloadError` for a field that has the name of something that `base` declares, and for a method of it that
    is none any more.
    """
    declared = {*vars(base), *vars(base).get("__annotations__", {})}
    for name in cls.model_fields:
        if name in declared:
            raise PayloadError(
                f"{cls.__name__}.{name}", _why_no_field(name, is_method=callable(getattr(base, name, None)))
            )
    for name, value in vars(base).items():
        is_method = not name.startswith("_") and callable(getattr(base, name)) and not isinstance(value, type)
        if is_method and not callable(getattr(cls, name)):
            kind = type(getattr(cls, name)).__name__
            raise PayloadError(f"{cls.__name__}.{name}", f"must be a method, def {name}(self); it is of type {kind}")


def _why_no_field(name: str, *, is_method: bool) -> str:
    if is_method:
        what, meant = "hides the method of this name", f"define that, def {name}(self)"
    else:
        what, meant = "leaves the setting of this name unsaid", f"write {name} = … without a type, or ClassVar[…]"
    return (
        f"is a field, since it has a type, and {what}; {meant}; a field of your own needs another name "
        f'(Field(alias="{name}") keeps what is stored)'
    )
