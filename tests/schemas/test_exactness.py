"""What a payload may hold: everything that comes back as it went in, and nothing else."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_schemas import Payload, PayloadError, digest
from outbox_schemas.exactness import MAX_DEPTH, MAX_INT_DIGITS, as_stored, text_digest


class Anything(Payload):
    """Holds any value, so that only the product's own rules decide."""

    kind: ClassVar[str] = "anything"
    value: Any

    def logical_key(self) -> str:
        """Return a constant."""
        return "key"


class Colour(enum.Enum):
    """A closed choice."""

    RED = "red"


class Typed(Payload):
    """Holds the types that survive JSON because the field declares them."""

    kind: ClassVar[str] = "typed"
    amount: Decimal
    at: datetime
    on: date
    id: UUID
    raw: bytes
    tags: frozenset[str]
    colour: Colour
    pair: tuple[int, str]

    def logical_key(self) -> str:
        """Return the id."""
        return str(self.id)


def nested(depth: int) -> Any:
    """Return lists within lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def looped() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


REFUSED = {
    "nan": (float("nan"), "payload.value"),
    "infinity": ({"a": [1, float("inf")]}, "payload.value.a[1]"),
    "minus infinity": (float("-inf"), "payload.value"),
    "overflowing literal": (1e400, "payload.value"),
    "negative zero": ([-0.0], "payload.value[0]"),
    "NUL": ("a\x00b", "payload.value"),
    "NUL deep inside": ({"a": [{"b": "x\x00"}]}, "payload.value.a[0].b"),
    "NUL in a key": ({"a": {"b\x00": 1}}, "payload.value.a"),
    "lone high surrogate": ("\ud800", "payload.value"),
    "lone low surrogate in a key": ({"\udfff": 1}, "payload.value"),
    "surrogates that look like a pair": ("\ud83d\ude00", "payload.value"),
    "too many digits": (10**MAX_INT_DIGITS, "payload.value"),
    "too many digits below zero": (-(10**MAX_INT_DIGITS), "payload.value"),
    "5,000 digits": (10**5000, "payload.value"),
    "naive datetime": ([datetime(2025, 1, 1)], "payload.value[0]"),  # noqa: DTZ001 - the point
    "aware datetime without a declared type": (datetime(2025, 1, 1, tzinfo=UTC), "payload.value"),
    "Decimal without a declared type": (Decimal("0.1"), "payload.value"),
    "bytes without a declared type": (b"abc", "payload.value"),
    "set without a declared type": ({1, 2}, "payload.value"),
    "tuple without a declared type": ((1, 2), "payload.value"),
    "whole-number keys": ({1: "a"}, "payload.value"),
    "keys that fall together": ({1: "a", "1": "b"}, "payload.value"),
    "a foreign object": (object(), "payload"),
    "a float that jsonb gives back as another number": (1e23, "payload.value"),
    "nested too deep": (nested(MAX_DEPTH + 5), "payload.value"),
    "holds itself": (looped(), "payload.value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_would_change_is_refused_with_its_path(name: str) -> None:
    """Whatever JSON or PostgreSQL can't hold exactly is refused, and the error names the field and quotes no value."""
    value, path = REFUSED[name]
    with pytest.raises(PayloadError) as caught:
        Anything.model_construct(value=value).to_document()
    assert caught.value.field.startswith(path)
    assert len(str(caught.value)) < 1000


SURVIVORS: list[Any] = [
    0, -1, 2**53 + 1, 2**63, -(2**64), 10 ** (MAX_INT_DIGITS - 1), 0.1, 1e22, 5e-324, 1.0, True, None, "", "é",
    "e\u0301", "\\u0000", "😀" * 2000, "\u202e", [], {}, {"": ""}, [[{"a": [None]}]], nested(MAX_DEPTH - 2),
]  # fmt: skip


@pytest.mark.parametrize("value", SURVIVORS, ids=lambda value: ascii(value)[:20])
def test_a_value_that_survives_is_accepted(value: Any) -> None:
    """Numbers beyond a double, tiny floats, any valid text and the literal characters of an escape pass."""
    document = Anything(value=value).to_document()
    assert Anything.model_validate_json(document.text).value == value


def test_declared_types_survive() -> None:
    """Decimal, UUID, date, aware datetime, bytes, sets, enums and tuples come back through their declared types."""
    payload = Typed(
        amount=Decimal("0.10"),
        at=datetime(2025, 3, 30, 2, 30, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
        on=date(2025, 2, 28),
        id=UUID(int=7),
        raw=b"\x00\xff",
        tags=frozenset({"a", "b"}),
        colour=Colour.RED,
        pair=(1, "x"),
    )
    assert Typed.model_validate_json(payload.to_document().text) == payload


def test_a_naive_datetime_is_refused_where_the_field_declares_one() -> None:
    """A declared datetime field does not let a naive instant through."""
    payload = Typed.model_construct(
        amount=Decimal(1), at=datetime(2025, 1, 1), on=date(2025, 1, 1), id=UUID(int=1), raw=b"",  # noqa: DTZ001
        tags=frozenset(), colour=Colour.RED, pair=(1, "x"),
    )  # fmt: skip
    with pytest.raises(PayloadError, match=r"payload\.at: is a naive datetime"):
        payload.to_document()


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("x" * 7_900, True),
        ("x" * 8_100, True),
        ("x" * (64 * 1024 - 12), True),
        ("x" * (64 * 1024 - 11), False),
        ("\x01" * 4_096, True),
        ("\x01" * 11_000, False),
        ("😀" * 16_380, True),
        ("😀" * 16_384, False),
        ("x" * 1_000_000, False),
        ("x" * 64_000_000, False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else f"{value[0]!a}*{len(value)}",
)
def test_the_size_limit_counts_the_bytes_that_are_stored(text: str, *, accepted: bool) -> None:
    """The limit is in bytes of JSON, escapes and UTF-8 included, and its error tells size and limit."""
    payload = Anything(value=text)
    if accepted:
        assert len(payload.to_document().text.encode()) <= 65_536
    else:
        with pytest.raises(PayloadError, match="bytes as JSON; 65536 are allowed"):
            payload.to_document()


def test_a_caller_may_set_another_limit() -> None:
    """The limit is an argument, in bytes, inclusive."""
    size = len(Anything(value="abc").to_document().text)
    assert Anything(value="abc").to_document(size)
    with pytest.raises(PayloadError):
        Anything(value="abc").to_document(size - 1)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, True),
        (1, 1.0, True),
        ([1, {"a": 2.0}], [1.0, {"a": 2}], True),
        (1, "1", False),
        (1, True, False),
        (0, False, False),
        (None, 0, False),
        ([1, 2], [2, 1], False),
        ("é", "e\u0301", False),
        (2**53, 2**53 + 1, False),
        (0.1, 0.1000000000000001, False),
        ({"a": None}, {}, False),
    ],
)
def test_the_digest_tells_arguments_apart_as_documented(left: Any, right: Any, *, same: bool) -> None:
    """Key order and 1 against 1.0 don't matter; type, order, composition and precision do."""
    first, second = (Anything(value=value).to_document().digest for value in (left, right))
    assert (first == second) is same


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_any_json_value_survives_or_is_refused(value: Any) -> None:
    """Every value of JSON's own types either comes back equal, of equal digest, or is refused with a path."""
    try:
        document = Anything(value=value).to_document()
    except PayloadError as error:
        field = error.field
    else:
        field = None
    if field is not None:
        assert field.startswith("payload")
        return
    again = Anything.model_validate_json(document.text)
    assert again.value == value
    assert again.to_document().digest == document.digest == digest([1, {"value": value}])


@given(json_values)
def test_the_cheap_look_accepts_nothing_that_the_thorough_one_refuses(value: Any) -> None:
    """What is stored without the walk over paths is, byte by byte, what would have been stored after it."""
    payload = Anything.model_construct(value=value)
    text = payload._plain_json()
    if text is not None:
        assert payload._exact_json() == text
        payload._check_round_trip(text)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5), st.integers(1, 9))
def test_the_digest_of_a_text_is_that_of_its_document(document: dict[str, Any], version: int) -> None:
    """Whether a text is canonical already or has to be written anew makes no difference."""
    try:
        text = Anything(value=document).to_document().text
    except PayloadError:
        return
    inner = text.removeprefix('{"value":').removesuffix("}")
    assert text_digest(version, inner) == digest([version, document])


class Whole(Payload):
    """Declares a whole number."""

    kind: ClassVar[str] = "whole"
    number: int

    def logical_key(self) -> str:
        """Return the number."""
        return str(self.number)


@pytest.mark.parametrize("value", [Decimal(1), "1", [1]])
def test_an_unchecked_value_of_another_type_is_refused(value: Any) -> None:
    """What equals its declared type's value but is written otherwise does not slip in past the model's checks."""
    with pytest.raises(PayloadError):
        Whole.model_construct(number=value).to_document()


def test_instants_hidden_in_containers_are_found() -> None:
    """A naive datetime is refused however deep it lies, an aware one of a declared type is not."""

    class Instants(Payload):
        """Holds instants by name."""

        kind: ClassVar[str] = "instants"
        at: dict[str, list[datetime]]

    aware = Instants(at={"a": [datetime(2025, 1, 1, tzinfo=UTC)]})
    assert Instants.model_validate_json(aware.to_document().text) == aware
    with pytest.raises(PayloadError, match=r"payload\.at\.a\[0\]: is a naive datetime"):
        Instants(at={"a": [datetime(2025, 1, 1)]}).to_document()  # noqa: DTZ001 - the point


@pytest.mark.parametrize("text", ['{"id":"1e5a"}', '["\\"1e5"]', '{"2E7":1}'])
def test_exponents_in_texts_are_no_numbers(text: str) -> None:
    """Only a number's exponent is written out as jsonb does; a hexadecimal name keeps its letters."""
    assert as_stored(text) is text
    assert as_stored(f"[{text},1e2]") == f"[{text},100]".replace(",", ", ").replace('":', '": ')
