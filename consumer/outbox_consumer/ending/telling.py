"""What the log says of failed attempts: enough to notice and find them, never their payloads, and bounded."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from outbox.logs import RateLimited
from outbox.sealing.envelope import is_sealed_text
from outbox.texts.masking import shortened
from outbox_consumer.effects.errors import EffectArgumentsChanged, EffectOnHold, EffectResultUnstorable
from outbox_consumer.ending.endings import Ending, code_of
from outbox_schemas import Outcome

__all__ = ["Telling"]

_EVERY_S = 10.0
# Further codes share one limit: a code may hold anything, an id for example.
_CODES = 100
_REASON_CHARACTERS = 200
# Errors of ours end with what to do, which must be whole, and hold nothing of the handler's but names.
_OWN_CHARACTERS = 480
_OWN_CODES = frozenset(
    {
        EffectArgumentsChanged.default_code,
        EffectOnHold.default_code,
        EffectResultUnstorable.default_code,
        "effect_reconcile_none",
        "handler_misdeclared",
    }
)
_OTHER = "another code"
_COUNTED = frozenset({Outcome.RETRIED, Outcome.FAILED})


class Telling:
    """Logs what became of failed attempts: for each event, kind and code one line in ten seconds, and what was left out
    counted in the next one, or told by `catch_up`. For one thread.
    """

    def __init__(self) -> None:
        self._limited = RateLimited(logging.getLogger("outbox.consumer"), every_s=_EVERY_S)
        self._known: set[tuple[str, str]] = set()
        self._counts: Counter[tuple[str, ...]] = Counter()

    def tell(self, item: Ending, found: Outcome) -> None:
        """Say that a job has failed for good (WARNING), or that it will be tried again (INFO); of others nothing."""
        if found in _COUNTED:
            kind = item.entry.claimed.kind
            self._counts[kind, self._limited_code(kind, code_of(item)), found.value] += 1
        if found is Outcome.FAILED:
            self._say(logging.WARNING, "job failed", item)
        elif found is Outcome.RETRIED:
            self._say(logging.INFO, "attempt failed; trying again", item, wait_s=round(item.wait_s, 3))

    def tell_torn(self, item: Ending) -> None:
        """Say that user code committed the job's success by itself, so that what else it wrote may be missing."""
        self._say(logging.ERROR, "apply() committed by itself; its job has succeeded, perhaps without effects", item)

    def counts(self) -> dict[tuple[str, ...], int]:
        """Return how many attempts ended so, by kind, code and outcome. From any thread."""
        return dict(self._counts.copy())

    def catch_up(self, *, now: bool = False) -> None:
        """Tell what was left out, of what nothing has been said since: after ten seconds, or `now`. From any thread."""
        self._limited.catch_up(now=now)

    def _say(self, level: int, event: str, item: Ending, *, wait_s: float | None = None) -> None:
        claimed, failure = item.entry.claimed, item.failure
        code = code_of(item)
        facts: dict[str, Any] = {
            "job_id": claimed.lease.job_id,
            "kind": claimed.kind,
            "attempt": claimed.attempt,
            "code": code,
        }
        if wait_s is not None:
            facts["wait_s"] = wait_s
        if failure is not None and failure.message and not is_sealed_text(failure.message):
            limit = _OWN_CHARACTERS if code in _OWN_CODES else _REASON_CHARACTERS
            facts["reason"] = shortened(failure.message, limit)
        key = f"{event}: {claimed.kind}: {self._limited_code(claimed.kind, code)}"
        self._limited.log(level, event, key=key, **facts)

    def _limited_code(self, kind: str, code: str) -> str:
        if (kind, code) not in self._known:
            if len(self._known) >= _CODES:
                return _OTHER
            self._known.add((kind, code))
        return code
