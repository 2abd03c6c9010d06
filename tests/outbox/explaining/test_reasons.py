"""What a job waits for is decided for every state and phase, by its rows and what surrounds them alone."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from outbox.explaining.key_reasons import held_by_key
from outbox.explaining.reasons import NO_HANDLER, NOT_DUE, explanation_of
from outbox.explaining.remedies import BY_A_PERSON, BY_ITSELF, REMEDIES, redriving, resolving, resuming
from outbox.explaining.surroundings import Surroundings
from outbox.texts.spans import span
from outbox_schemas import Explanation, JobView, Reason
from support.situations import NOW, SITUATIONS


@pytest.mark.parametrize(("view", "around", "expected", "codes"), SITUATIONS)
def test_every_situation_has_its_reasons(
    view: JobView, around: Surroundings, expected: str, codes: list[Reason]
) -> None:
    """The answer says who acts next, and when; what else stands in the way follows."""
    found = explanation_of(view, around)
    assert found.text == expected
    assert [found.code, *(also.code for also in found.also)] == codes
    assert (found.job_id, found.state, found.at) == (view.id, view.state, NOW)
    nobody_else = "none may run" in found.text
    exact = {
        Reason.FAILED: redriving(view.id),
        Reason.EFFECT_ON_HOLD: resolving(view.id, next(iter(around.open_effects), "")),
    }
    if found.code in exact:  # the command as it is typed in
        assert found.unblocked_by == exact[found.code]
        return
    assert found.unblocked_by in {
        (BY_A_PERSON if nobody_else else REMEDIES)[found.code],
        *((BY_ITSELF[found.code],) if found.code in BY_ITSELF and _moves(found) else ()),
        *map(resuming, around.pauses if found.code is Reason.PAUSED else ()),
        *(one.remedy for one in held_by_key(around.key, view.limit_key) if one.reason is found.code),
    }


def _moves(found: Explanation) -> bool:
    """Tell whether nobody is missing, by the sentence."""
    return "which is there" in found.text or "have all ended" in found.text


def test_nobody_is_sent_for_what_is_there() -> None:
    """Where a consumer that can run it is there, or the set is complete, the remedy is not to bring one."""
    moving = [found for view, around, *_ in SITUATIONS if _moves(found := explanation_of(view, around))]
    assert {found.code: found.unblocked_by for found in moving} == dict(BY_ITSELF)


def test_every_reason_occurs() -> None:
    """No code is there that no situation has."""
    assert {code for *_, codes in SITUATIONS for code in codes} == set(Reason) == set(REMEDIES)


def test_what_the_rows_know_is_dated() -> None:
    """Where its instants are on record, each reason says since when it holds, but for those that the guide names."""
    known = {"attempt_ended_at": NOW, "relay_seen_at": NOW, "able_seen_at": NOW}
    undated: dict[Reason, set[str]] = {}
    for view, around, _, _ in SITUATIONS:
        row = None if view.owed is None else view.owed.model_copy(update={"released_at": view.owed.released_at or NOW})
        dates = dict.fromkeys(("finished_at", "cancel_requested_at", "lease_started_at"), NOW)
        found = explanation_of(view.model_copy(update={"owed": row, **dates}), replace(around, **known))  # type: ignore[arg-type]
        for one in (found, *found.also):
            if one.since is None:
                undated.setdefault(one.code, set()).add(one.text)
    assert len(undated.pop(Reason.PAUSED)) == len(undated.pop(Reason.NOT_DUE)) == 1  # over; of an unknown release
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
    never = page.partition("Never have one: ")[2].partition("\n\n")[0]
    assert set(undated) == set(re.findall(r"`([a-z_]+)`", never)) - {Reason.PAUSED, Reason.NOT_DUE}


def test_an_error_s_message_stays_out() -> None:
    """Only an error's stable code is told: its message may hold anything."""
    for view, around, _, _ in SITUATIONS:
        assert "anything" not in explanation_of(view, around).model_dump_json()


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (9.99, "10.0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3599.7, "1 h"),
        (7800, "2 h 10 min"),
        (360_000, "4 d 4 h"),
    ],
)
def test_spans(seconds: float, expected: str) -> None:
    """Spans are rounded to two units that people can read."""
    assert span(seconds) == expected


def test_the_words_are_those_that_the_statement_writes() -> None:
    """The words that are told apart here stand in the statement that gives hints back."""
    text = files("outbox").joinpath("sql/refuse.sql").read_text(encoding="utf-8")
    assert f"'{NO_HANDLER}'" in text
    assert f"'{NOT_DUE}'" in text


def test_the_guide_lists_every_reason_with_its_remedy() -> None:
    """The operating guide's table has each code, a sentence as it is printed, and what unblocks it."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")
    section = page.partition("## Why is this job not running?")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| `([^`]+)` \| (.+) \|$", section, re.MULTILINE)
    assert [code for code, _, _ in rows] == [reason.value for reason in Reason]
    assert {code: remedy for code, _, remedy in rows} == {reason.value: text for reason, text in REMEDIES.items()}
    said: dict[str, set[str]] = {}
    for view, around, _, _ in SITUATIONS:
        found = explanation_of(view, around)
        for finding in (found, *found.also):
            said.setdefault(finding.code, set()).add(finding.text)
    assert not [(code, sentence) for code, sentence, _ in rows if sentence not in said[code]]
