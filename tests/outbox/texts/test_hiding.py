"""What is sensitive in a payload is hidden from texts however long it is, and wherever a text was cut."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from outbox.texts.hiding import hidden_of, hiding
from outbox.texts.masking import MASK, Cut, mask, masked_line, masked_start, traceback_text
from outbox_consumer.failing.failures import failure_of
from outbox_schemas import Sensitive
from outbox_schemas.redaction import MOST_HIDDEN
from support.jobs import Note

# Of none of them any three characters are those of an innocent word here.
LONG = "".join(f"[{number:x}]~" for number in range(4_000))
SHORT = "#~[canary]~#"


class Filed(Note):
    """Has a document that nobody may see."""

    document: Annotated[str, Sensitive] = ""
    cards: tuple[SecretStr, ...] = ()


def quoting(error: BaseException) -> list[str]:
    """Return what is kept and logged of an error."""
    return [failure_of(error).message, masked_line(str(error), 500), masked_line(str(error)), traceback_text(error)]


@pytest.mark.parametrize("value", [LONG, LONG[:900], SHORT], ids=["longer than any window", "long", "short"])
@pytest.mark.parametrize("times", [1, 3, 5_000])
def test_no_cut_leaves_a_part_of_a_value(value: str, times: int) -> None:
    """Only the beginning of a long text is looked through, and it may end within a value, or hold nothing else."""
    text = f"no room for {' '.join([value] * times)}"[:1_000_000]
    with hiding(hidden_of(Filed(key="k", document=value))):
        for shown in quoting(ValueError(text)):
            assert "~" not in shown
            assert "no room for ***" in shown


def test_a_text_may_be_cut_at_any_character_of_a_value() -> None:
    """However little of it is left, on either side, also of a short one that is replaced only where it stands alone."""
    for value in (SHORT, "~[=]"):
        with hiding(hidden_of(Filed(key="k", document=value))):
            for place in range(1, len(value)):
                assert masked_start(f"so {value} it is", 3 + place) == f"so {MASK}"
                assert mask(f"{value[place:]} it is", Cut.BEFORE) == f"{MASK} it is"


class Elsewhere(BaseModel):
    """A model of the handler's own."""

    number: int


def test_who_quotes_a_long_value_may_shorten_it() -> None:
    """One shows the ends of what it refuses, Python the beginning: a part of either is hidden as far as it goes."""
    errors: list[Any] = []
    for refusing in (lambda: Elsewhere.model_validate({"number": LONG}), lambda: int(LONG)):
        with pytest.raises(ValueError, match=r"~") as caught:
            refusing()
        errors.append(caught.value)
    assert isinstance(errors[0], ValidationError)
    with hiding(hidden_of(Filed(key="k", document=LONG))):
        for error in errors:
            for shown in quoting(error):
                assert "~" not in shown
                assert MASK in shown
        assert masked_line("number of the document") == "number of the document"


def test_of_more_values_than_are_looked_for_nothing_is_quoted() -> None:
    """Whether a text holds one of those that are left over, nobody knows."""
    cards = tuple(SecretStr(f"{number:016}") for number in range(MOST_HIDDEN + 1))
    for payload, is_told in ((Filed(key="k", cards=cards), False), (Filed(key="k", cards=cards[:100]), True)):
        with hiding(hidden_of(payload)):
            shown = masked_line(f"refused: {payload.cards[-1].get_secret_value()}")
        assert payload.cards[-1].get_secret_value() not in shown
        assert ("refused" in shown) == is_told
