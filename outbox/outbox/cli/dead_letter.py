"""One dead letter for people and machines: everything that helps to decide, and no value that may be a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from outbox.cli.attempts import attempt_lines, earlier_attempts, more_effects, traceback_lines
from outbox.cli.jobs import error_line
from outbox.cli.output import instant, table
from outbox.database.link import Link
from outbox.errors import NotDead
from outbox.operating.dead_letters import read_dead_letter
from outbox.operating.resolving import EffectPage, job_effects
from outbox.reading.jobs import database_time, known_job, list_attempts
from outbox.reading.payload_types import PayloadTypes, links_of
from outbox.reading.showing import shown_payload
from outbox.texts.masking import masked_line, printable
from outbox.texts.spans import span
from outbox_schemas import JobView

__all__ = ["dead_letter_data", "dead_letter_lines"]

_VALUE_LIMIT = 300


def dead_letter_data(link: Link, job_id: UUID, types: PayloadTypes, *, limit: int) -> dict[str, Any]:
    """Return what there is to show, of attempts and effects `limit` each.

    Raises `JobNotFound`, or `NotDead` where the job has not failed.
    """
    now = database_time(link)
    job = known_job(link, job_id)
    letter = read_dead_letter(link, job_id)
    if letter is None:
        raise NotDead(job_id, job.state)
    attempts, effects = list_attempts(link, job_id, limit=limit), job_effects(link, job_id, limit=limit)
    shown, payload = shown_payload(job, letter.payload_text, types)
    return {
        "job": job,
        "code": letter.code,
        "failed_at": letter.failed_at,
        "age": now - letter.failed_at,
        "discarded_at": letter.discarded_at,
        "discarded_by": letter.discarded_by,
        "discard_reason": letter.discard_reason,
        "attempts": attempts,
        "earlier_attempts": earlier_attempts(attempts),
        "effects": effects.effects,
        "more_effects": effects.more,
        "payload": shown,
        "links": {} if payload is None else links_of(payload),
    }


def dead_letter_lines(data: dict[str, Any]) -> Iterator[str]:
    """Return the same as lines."""
    job: JobView = data["job"]
    facts: dict[str, object] = {
        "job": job.id,
        "kind": f"{job.kind} (version {job.version})",
        "key": job.logical_key,
        "tenant": job.tenant,
        "queue": job.queue,
        "failed": f"{instant(data['failed_at'])}, {span(data['age'].total_seconds())} ago, code {data['code']}",
        "first error": error_line(job.first_error),
        "last error": error_line(job.last_error),
        "no retry": job.failed_because or "-",
        "attempts": job.attempt_count,
        "created": instant(job.created_at),
        "deadline": instant(job.deadline_at),
    }
    if data["discarded_at"] is not None:
        facts["discarded"] = f"by {data['discarded_by']}, {instant(data['discarded_at'])}: {data['discard_reason']}"
    facts |= {f"link {name}": masked_line(link) for name, link in data["links"].items()}
    for name, value in facts.items():
        yield f"{printable(name, 40) + ': ':<13}{printable(str(value), _VALUE_LIMIT)}"
    yield f"{'payload:':<13}{printable(json.dumps(data['payload'], ensure_ascii=False), 2000)}"
    yield from _tables(data)


def _tables(data: dict[str, Any]) -> Iterator[str]:
    if data["attempts"]:
        yield ""
        yield from attempt_lines(data["attempts"])
        yield from traceback_lines(data["attempts"])
    if data["effects"]:
        yield ""
        headers = ["EFFECT", "STATE", "SENDS", "SETTLED BY", "REMOTE ID", "ERROR", "BEGUN"]
        rows = [
            [one.name, one.state, one.sends, one.settled_by, one.remote_request_id, one.error_code, one.created_at]
            for one in data["effects"]
        ]
        yield from table(headers, rows)
        yield from more_effects(EffectPage(data["effects"], data["more_effects"]))
