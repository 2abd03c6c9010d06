"""What is sensitive is masked wherever a payload shows itself, and kept as it is where it is stored."""

from __future__ import annotations

import dataclasses
import json
from datetime import date
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

import pytest
from pydantic import (
    BaseModel,
    Field,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    ValidationError,
    create_model,
    field_validator,
)
from typing_extensions import TypeAliasType, TypedDict

from outbox_schemas import Payload, PayloadError, Ref, Sensitive, redacted, shape
from outbox_schemas.redaction import hidden_texts
from outbox_schemas.refusals import reasons
from outbox_schemas.sensitive import holds_sensitive

CANARY = "canary-7c1f93"
Card = Annotated[str, Sensitive]
T = TypeVar("T")


class Base(Payload):
    """Has a key."""

    kind: ClassVar[str] = "test.sensitive"

    def logical_key(self) -> str:
        """Return a constant."""
        return "key"


Named = TypeAliasType("Named", Card)
Numbered = TypeAliasType("Numbered", list[tuple[T, Card]], type_params=(T,))
By = TypeAliasType("By", dict[str, T], type_params=(T,))
# Quoted, since what the `type` statement of Python 3.12 makes may name itself, too.
Nested = TypeAliasType("Nested", "int | list[Nested] | dict[str, Card]")
Plain = TypeAliasType("Plain", "int | list[Plain] | dict[str, Plain]")


class Person(BaseModel):
    """A model inside a payload."""

    name: str
    card: Card


class Box(BaseModel, Generic[T]):
    """A generic model."""

    item: T


class Cards(RootModel[list[Card]]):
    """A list by another name."""


class Row(TypedDict):
    """A dict with declared keys."""

    card: Card


class Pair(NamedTuple):
    """A tuple with names."""

    card: Card
    amount: int


@dataclasses.dataclass
class Data:
    """A dataclass."""

    card: Card
    amount: int


PERSON = {"name": "Ada", "card": CANARY}
NESTED: dict[str, tuple[Any, Any]] = {
    "a field": (Card, CANARY),
    "an instance of the marker": (Annotated[str, Sensitive()], CANARY),
    "beside other metadata": (Annotated[str, Field(min_length=1), Sensitive], CANARY),
    "optional": (Card | None, CANARY),
    "optional as a whole": (Annotated[str | None, Sensitive], CANARY),
    "one of a union": (int | Card, CANARY),
    "in a list": (list[Card], [CANARY]),
    "in an optional list": (list[Card] | None, [CANARY]),
    "in a list of lists": (list[list[Card]], [[CANARY]]),
    "in a tuple": (tuple[int, Card], (1, CANARY)),
    "in a tuple of any length": (tuple[Card, ...], (CANARY,)),
    "in a set": (frozenset[Card], frozenset({CANARY})),
    "in a dict": (dict[str, Card], {"a": CANARY}),
    "as a dict's key": (dict[Card, int], {CANARY: 1}),
    "a whole list": (Annotated[list[str], Sensitive], [CANARY]),
    "in a model": (Person, PERSON),
    "in models in a dict": (dict[str, list[Person]], {"a": [PERSON]}),
    "in one of two models": (Person | Data, PERSON),
    "in a generic model": (Box[Card], {"item": CANARY}),
    "in a root model": (Cards, [CANARY]),
    "in a typed dict": (Row, {"card": CANARY}),
    "in a list of typed dicts": (list[Row], [{"card": CANARY}]),
    "in a named tuple": (Pair, (CANARY, 1)),
    "in a dataclass": (Data, {"card": CANARY, "amount": 1}),
    "by a name": (Named, CANARY),
    "by a name that has parameters": (Numbered[int], [[1, CANARY]]),
    "in what a name is given": (By[Card], {"a": CANARY}),
    "by a name that stands for itself, too": (Nested, [[{"a": CANARY}]]),
    "a secret": (SecretStr, CANARY),
    "secret bytes": (SecretBytes, "Y2FuYXJ5LTdjMWY5Mw=="),
    "secrets in a dict": (dict[str, SecretStr | None], {"a": CANARY, "b": None}),
}


def made(annotation: Any, **more: Any) -> type[Payload]:
    """Return a payload class with one field of a type, and an innocent one."""
    body = {"__annotations__": {"value": annotation, "note": str}, "__module__": __name__}
    return type("Made", (Base,), body | more)


def given(annotation: Any, value: Any) -> Payload:
    """Return a payload that came from JSON, as a stored one does."""
    return made(annotation).from_document(json.dumps({"value": value, "note": "plain"}, default=list), 1)


@pytest.mark.parametrize("case", NESTED)
def test_a_marked_value_is_masked_at_any_depth(case: str) -> None:
    """No text that a payload shows of itself holds it, the innocent field is shown, and handlers see both."""
    payload = given(*NESTED[case])
    texts = [json.dumps(redacted(payload)), repr(payload), str(payload), f"{payload}", repr([payload])]
    assert not [text for text in texts if CANARY in text or "Y2FuYXJ5" in text]
    assert all("plain" in text and "***" in text for text in texts)
    assert CANARY in hidden_texts(payload)
    assert "plain" not in hidden_texts(payload)


@pytest.mark.parametrize("case", NESTED)
def test_a_marked_value_is_stored_as_it_is(case: str) -> None:
    """What is stored comes back equal, secrets included."""
    payload = given(*NESTED[case])
    text = payload.to_document().text
    assert CANARY in text or "Y2FuYXJ5LTdjMWY5Mw==" in text
    assert type(payload).from_document(text, 1) == payload


def test_what_is_not_marked_is_shown() -> None:
    """A class without markers shows itself as pydantic does, and redaction changes nothing of it."""
    payload = given(dict[str, list[int]], {"a": [1, 2]})
    assert redacted(payload) == {"value": {"a": [1, 2]}, "note": "plain"}
    assert repr(payload) == "Made(value={'a': [1, 2]}, note='plain')"
    assert hidden_texts(payload) == []
    assert not holds_sensitive(type(payload))


def test_a_type_that_holds_itself_may_be_innocent() -> None:
    """The search for markers ends, and nothing is masked."""
    assert redacted(given(Plain, [1, {"a": [2]}]))["value"] == [1, {"a": [2]}]
    assert not holds_sensitive(made(Plain))


def test_only_the_sensitive_parts_are_masked() -> None:
    """Neighbours inside the same model, list and dict stay readable."""
    payload = given(dict[str, list[Person]], {"a": [PERSON, {"name": "Bo", "card": "4111"}]})
    assert redacted(payload)["value"] == {"a": [{"name": "Ada", "card": "***"}, {"name": "Bo", "card": "***"}]}
    assert redacted(given(Card | None, None))["value"] is None
    assert redacted(given(tuple[int, Card], (1, CANARY)))["value"] == [1, "***"]


def test_a_secret_with_what_postgresql_cannot_hold_is_refused() -> None:
    """The contents of secrets obey the rules of all values, and the refusal doesn't repeat them."""
    payload = made(SecretStr)(value=SecretStr(f"{CANARY}\x00"), note="plain")
    with pytest.raises(PayloadError, match=r"payload\.value: holds a NUL character") as caught:
        payload.to_document()
    assert CANARY not in str(caught.value)


def test_hidden_texts_are_what_an_error_may_quote() -> None:
    """Numbers, dates and bytes are there as Python and JSON write them; what is shorter than 4 characters is not."""

    class Mixed(Base):
        number: Annotated[int, Sensitive]
        born: Annotated[date, Sensitive]
        raw: Annotated[bytes, Sensitive]
        pin: Annotated[str, Sensitive]
        whole: Secret[int]

    mixed = Mixed(number=41111, born=date(1990, 2, 3), raw=b"ab\xff\x01", pin="123", whole=Secret(98765))
    found = hidden_texts(mixed)
    assert {"41111", "1990-02-03", "YWL_AQ==".replace("_", "/"), r"ab\xff\x01", "98765"} <= set(found)
    assert "123" not in found


def test_a_shape_has_keys_and_types_only() -> None:
    """Of a payload whose class is unknown no value is shown, and no key that may be data."""
    document = {
        "card": CANARY,
        "n": 1,
        "f": 1.5,
        "ok": True,
        "none": None,
        "list": [1, 2, "x"],
        "a@b.example": {"x": 1},
    }
    assert shape(document) == {
        "card": "text",
        "n": "number",
        "f": "number",
        "ok": "boolean",
        "none": "null",
        "list": ["number", "text"],
        "…": "1 more",
    }
    assert shape(json.dumps(document)) == shape(document)
    assert shape('{"a": ') == "unreadable"
    assert CANARY not in json.dumps(shape({CANARY.replace("-", " "): {CANARY: [CANARY]}}))


def test_a_shape_is_bounded() -> None:
    """Depth, keys and items have limits."""
    deep: Any = "end"
    for _ in range(60):
        deep = {"a": [deep]}
    assert len(json.dumps(shape(deep))) < 200
    assert len(shape({f"k{number}": 1 for number in range(5_000)})) == 101
    assert shape([[number] for number in range(5_000)]) == [["number"]]


def test_refusals_never_quote() -> None:
    """The reasons of a validation error name the field and the rule; a validator's own text stays out."""

    class Strict(Base):
        card: str
        count: int

        @field_validator("card")
        @classmethod
        def _check(cls, value: str) -> str:
            raise ValueError(f"{value} is no card")

    with pytest.raises(ValidationError) as caught:
        Strict.from_document(json.dumps({"card": CANARY, "count": CANARY}), 1)
    assert CANARY not in repr(reasons(caught.value))
    assert reasons(caught.value) == [
        ("payload.card", "refused by a rule of its class (value_error)"),
        ("payload.count", "Input should be a valid integer, unable to parse string as an integer"),
    ]


def test_a_refused_change_quotes_nothing() -> None:
    """Neither of a payload's field, marked or not, nor of a reference's: what was to be put there is shown nowhere."""

    class Paid(Base):
        card: Card = "none"
        note: str = ""

    for model, name in ((Paid(), "card"), (Paid(), "note"), (Paid(), "cart"), (Ref.of(b"", uri="s3://a/b"), "uri")):
        with pytest.raises(ValidationError, match=f"(?s){name}.*frozen") as caught:
            setattr(model, name, CANARY)
        assert CANARY not in f"{caught.value!r} {caught.value} {caught.value.errors()}"
        assert caught.value.__suppress_context__


def test_the_mark_in_the_place_of_a_type_says_how_it_is_written() -> None:
    """A field that is only `Sensitive`, or `Sensitive[str]`, has no type; the error has the form that has."""
    with pytest.raises(TypeError, match=r"write Annotated\[str, Sensitive\]"):
        create_model("Card", number=(Sensitive, ...))
    with pytest.raises(TypeError, match=r"write Annotated\[str, Sensitive\]"):
        Sensitive[str]  # type: ignore[misc]
