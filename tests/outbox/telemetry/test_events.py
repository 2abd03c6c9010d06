"""The table of log events: what the code can log, and nothing else."""

from __future__ import annotations

import logging
import re

from outbox.database.trouble import Fault
from outbox.logs import LEFT_OUT
from outbox.telemetry.events import ALWAYS, COUNTS, EVENTS, FIELDS, event
from support.log_calls import LogCall, log_calls
from support.log_contract import breach

# These hand on what others have said: the limiter, and a handler's own process.
_HANDED_ON = ("outbox/outbox/logs.py", "outbox_consumer/isolation/forwarding.py")
# Here the event is one of `Fault`.
_FAULTS = "outbox/outbox/database/trouble.py"


def _checked() -> list[LogCall]:
    calls = [call for call in log_calls() if not any(path in call.where for path in _HANDED_ON)]
    return [call for call in calls if call.events or _FAULTS not in call.where]


def test_every_call_logs_an_event_of_the_table_with_fields_of_it() -> None:
    """Each call in the source is known: its text, its level, and every fact that the source names."""
    wrong = []
    for call in _checked():
        known = [event(text) for text in call.events if text in {one.text for one in EVENTS}]
        if not call.events or len(known) < len(call.events):
            wrong.append(f"{call.where}: no such event {call.events}")
        elif not any(set(call.levels) & set(one.levels) for one in known):
            wrong.append(f"{call.where}: level {call.levels}")
        wrong += [
            f"{call.where}: field {fact}" for fact in call.facts if known and not any(o.allows(fact) for o in known)
        ]
    assert not wrong


def test_every_event_of_the_table_is_logged_somewhere() -> None:
    """None is left behind when its code goes."""
    said = {text for call in _checked() for text in call.events} | {fault.value for fault in Fault} | {LEFT_OUT}
    assert {one.text for one in EVENTS} == said


def test_fields_have_one_meaning_and_plain_names() -> None:
    """Every field is explained once; none is without an event; no text stands twice."""
    own = {field for one in EVENTS for field in one.fields}
    around = {*ALWAYS, "error", "trace_id", "span_id", "suppressed"}
    assert own | around == FIELDS.keys()
    assert len({one.text for one in EVENTS}) == len(EVENTS)
    assert all(re.fullmatch(r"[a-z_]+", name) for name in [*FIELDS, *COUNTS["relay"], *COUNTS["consumer"]])


def test_a_record_beside_the_table_is_noticed() -> None:
    """What watches all other tests sees an unknown event, level, logger and field."""

    def said(msg: str, level: int = logging.WARNING, name: str = "outbox.consumer", **facts: object) -> str | None:
        record = logging.LogRecord(name, level, "x.py", 1, msg, (), None)
        vars(record).update(facts)
        return breach(record)

    assert said("lease lost", job_id="j", attempt=1, reason="r") is None
    assert "no such event" in str(said("lease found"))
    assert "level" in str(said("lease lost", logging.DEBUG))
    assert "not logged by" in str(said("lease lost", name="outbox.relay"))
    assert "['payload']" in str(said("lease lost", payload="x"))
