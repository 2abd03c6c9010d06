"""From whatever was raised to what is stored: always a bounded, masked, storable text, never another exception."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.texts import masking
from outbox_consumer import RetryableError, TerminalError, ThrottledError
from outbox_consumer.failing.failures import MESSAGE_CHARACTERS, TRACEBACK_CHARACTERS, failure_of, least_wait_s


def raised(error: BaseException) -> BaseException:
    """Return the exception with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any kind is under test
        return caught


class HostileError(Exception):
    """Raises whatever it is told to when it is printed."""

    def __init__(self, inner: BaseException) -> None:
        self.inner = inner

    def __str__(self) -> str:
        raise self.inner


class SlyText(str):
    """A text with ideas of its own."""

    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit

    def __getitem__(self, key: Any) -> Any:
        raise SystemExit


class SlyError(Exception):
    """Prints as a sly text."""

    def __str__(self) -> str:
        return SlyText("sly")


class PropertiedError(TerminalError):
    """An error whose attributes raise."""

    def __init__(self) -> None:
        pass

    @property
    def code(self) -> str:  # type: ignore[override]
        """Raise."""
        raise SystemExit

    @code.setter
    def code(self, value: str) -> None:
        del value


@pytest.mark.parametrize(
    "inner", [ValueError(), SystemExit(), KeyboardInterrupt(), RecursionError(), HostileError(OSError())]
)
def test_text_that_cannot_be_read_is_described(inner: BaseException) -> None:
    """An exception that raises from `__str__`, whatever it raises, is stored by the names of both."""
    failure = failure_of(raised(HostileError(inner)))
    assert failure.message == f"<HostileError whose text can't be read: {type(inner).__name__}>"
    assert failure.code == "HostileError"


def test_subclass_of_str_is_read_as_plain_text() -> None:
    """A `__str__` that returns a subclass of str can't break what follows."""
    assert failure_of(raised(SlyError())).message == "sly"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("PlainError", "PlainError"),
        ("Client.BusyError", "Client.BusyError"),
        ("make.<locals>.BusyError", "BusyError"),
        (f"{'make' * 40}.<locals>.BusyError", "BusyError"),
        ("_BusyError", "BusyError"),
        ("Größe 1", "Gr__e_1"),
        ("Long" * 60, "Long" * 25),
        ("1_", "Exception"),
        ("", "Exception"),
    ],
)
def test_code_of_an_unknown_error_is_a_code(name: str, code: str) -> None:
    """Whatever its class is called, and wherever it was defined: groups and stops of redrives go by it."""
    error = type("Error", (Exception,), {"__qualname__": name})()
    assert failure_of(raised(error)).code == code


def test_attributes_that_raise_fall_back_to_the_class() -> None:
    """A code that can't be read is replaced by its class's default."""
    failure = failure_of(raised(PropertiedError()))
    assert (failure.error_class, failure.code) == ("terminal", "terminal")


@pytest.mark.parametrize("code", [None, 7, "", "two words", "x" * 101, "n\x00l", "é"])
def test_code_that_is_none_is_replaced(code: Any) -> None:
    """A code that was set to something else after the fact never reaches the database."""
    error = TerminalError("x")
    error.code = code
    assert failure_of(raised(error)).code == "terminal"


def test_default_code_of_a_subclass_is_used() -> None:
    """A subclass names its code once, even if its `__init__` never calls ours."""

    class GoneError(TerminalError):
        default_code = "customer.gone"

        def __init__(self) -> None:
            pass

    assert failure_of(raised(GoneError())).code == "customer.gone"


def test_fifty_megabytes_are_cut_to_the_bound() -> None:
    """A huge message is cut, and says how long it was."""
    failure = failure_of(raised(ValueError("x" * 50_000_000)))
    assert failure.message == "x" * MESSAGE_CHARACTERS + "… (50000000 characters)"


@given(st.text(st.characters(), max_size=200))
def test_whatever_the_text_it_can_be_stored(text: str) -> None:
    """NUL, lone surrogates and terminal controls are replaced; the rest stays."""
    message = failure_of(ValueError(text)).message
    message.encode()
    assert not set(message) & (set(map(chr, range(32))) - {"\t", "\n"})


def test_literal_escape_text_is_kept() -> None:
    """The six characters that spell a NUL in JSON are text like any other."""
    literal = json.dumps("\x00")[1:-1]
    assert failure_of(ValueError(literal)).message == literal


def test_secrets_are_masked_also_across_the_cut() -> None:
    """A registered secret is never stored, not even its first half where the text is cut."""
    secret = "correct-horse-battery-staple"
    masking.register(secret)
    try:
        for lead in range(MESSAGE_CHARACTERS - len(secret) - 2, MESSAGE_CHARACTERS + 2):
            message = failure_of(ValueError("x" * lead + secret + " " + "y" * 100)).message
            assert "correct" not in message
        assert failure_of(ValueError("postgresql://u:hunter22@h/d")).message == "postgresql://u:***@h/d"
    finally:
        masking.forget_all()


def test_recursion_and_deep_chains_stay_bounded() -> None:
    """A traceback of a thousand frames and a chain of ten thousand causes are stored within the bound."""

    def deep() -> None:
        deep()

    with pytest.raises(RecursionError) as caught:
        deep()
    failure = failure_of(caught.value)
    assert failure.traceback is not None
    assert len(failure.traceback) < TRACEBACK_CHARACTERS + 50
    error: BaseException = ValueError("first")
    for _ in range(10_000):
        following = ValueError("next")
        following.__cause__ = error
        error = following
    assert "raised from ValueError" in str(failure_of(raised(error)).traceback)


def test_traceback_names_places_but_no_values() -> None:
    """The stored traceback holds files, lines and functions, no source text and no message."""
    failure = failure_of(raised(ValueError("value-7")))
    assert "test_failures.py" in str(failure.traceback)
    assert "value-7" not in str(failure.traceback)


def test_classes_of_errors() -> None:
    """Each public error has its class; anything else is unknown and named by its type."""
    found = [
        (failure_of(error).error_class, failure_of(error).code)
        for error in (
            TerminalError("x", code="a.b-c_1"),
            RetryableError("x"),
            ThrottledError("x", retry_after=1),
            KeyError("x"),
            asyncio.CancelledError(),
        )
    ]
    assert found == [
        ("terminal", "a.b-c_1"),
        ("retryable", "retryable"),
        ("throttled", "throttled"),
        ("unknown", "KeyError"),
        ("unknown", "CancelledError"),
    ]


@pytest.mark.parametrize("code", ["not a code", "9", "x" * 101, 5, b"x"], ids=str)
def test_a_bad_code_does_not_change_what_an_error_means(code: Any) -> None:
    """A refusal stays one, under the code of its class, and its message tells: raised instead, another error would be
    taken for unknown, and the job tried again.
    """
    failure = failure_of(TerminalError("no", code=code))
    assert (failure.error_class, failure.code) == ("terminal", "terminal")
    assert failure.message.startswith("no [its code is none: 1 to 100 ASCII letters")
    assert str(TerminalError("no")) == "no"


def test_a_wait_may_be_an_instant() -> None:
    """By the local clock, in UTC where no zone is named; what is past is no wait."""
    soon = datetime.now(UTC) + timedelta(hours=1)
    for at in (soon, soon.replace(tzinfo=None), soon.astimezone(timezone(timedelta(hours=5)))):
        assert timedelta(minutes=59) < ThrottledError(retry_after=at).retry_after <= timedelta(hours=1)
    assert ThrottledError(retry_after=soon - timedelta(hours=2)).retry_after == timedelta(0)


def test_throttled_without_its_wait_counts_as_no_wish() -> None:
    """A throttled error whose `__init__` never ran asks for nothing."""

    class BareError(ThrottledError):
        def __init__(self) -> None:
            pass

    assert least_wait_s(BareError()) == 0.0
