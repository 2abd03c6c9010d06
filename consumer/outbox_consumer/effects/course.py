"""The one way that a call of an effect takes, from its announcement to its result. It asks for each thing that blocks,
so that it runs on a thread and on an event loop alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID, uuid4

import sqlalchemy as sa

from outbox.leases.effects import EffectBook, Found, Remote, SettledBy, Written
from outbox.processes.barriers import Barrier, hit
from outbox.sealing.vault import Vault
from outbox_consumer.basis.errors import is_a
from outbox_consumer.basis.trails import EffectTrail
from outbox_consumer.effects.deciding import Step, in_doubt, step_for
from outbox_consumer.effects.declared import Declared
from outbox_consumer.effects.errors import EffectNotSent, EffectOnHold, SurelyNotDone, comes_of_another
from outbox_consumer.effects.refusals import answerless, refusal, unstorable
from outbox_consumer.effects.seals import Seals
from outbox_consumer.effects.values import remote_of, says_not_done, says_nothing
from outbox_consumer.failing.failures import failure_of
from outbox_schemas import EffectState, LeaseLost
from outbox_schemas.documents import read_back
from outbox_schemas.effect_keys import provider_key

__all__ = ["Ask", "Course", "Owner", "Record"]

log = logging.getLogger("outbox.consumer")


@dataclass(frozen=True, slots=True)
class Record:
    """Asks for a statement of the ledger to be run."""

    run: Callable[[sa.Connection], Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks for user code to be run: `send` or `reconcile`."""

    what: str
    run: Callable[[], Any]


Steps = Generator[Record | Ask, Any, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """The attempt that calls: its job's id and its number, and how it hears and tells of its lease."""

    job_id: UUID
    attempt: int
    check: Callable[[], None]
    lose: Callable[[], NoReturn]
    key_lifetime_s: float | None = None
    vault: Vault | None = None
    trail: EffectTrail | None = None


class Course:
    """One call of one effect. `steps` is to be driven once."""

    def __init__(self, owner: Owner, book: EffectBook, declared: Declared) -> None:
        self._owner = owner
        self.trail = owner.trail
        """Its spans, for whoever drives it; None: it is not traced."""
        self._book = book
        self._declared = declared
        self._seals = Seals(owner.vault, declared.name)
        self._key = str(provider_key(owner.job_id, declared.name))
        # Drawn for each call: whoever reads it on record knows whose announcement that is.
        self._call = uuid4()

    def steps(self) -> Steps:
        """Go from the announcement to the result, and return it."""
        self._owner.check()
        hit(Barrier.EFFECT_BEFORE_PENDING)
        declared, call = self._declared, self._call
        digest = self._seals.digest(declared.digest)
        found: Found = yield Record(lambda connection: self._book.begin(connection, digest, call))
        step = step_for(
            found,
            call,
            digest,
            reconciles=declared.reconcile is not None,
            on_uncertain=declared.on_uncertain,
            key_lifetime_s=self._owner.key_lifetime_s,
        )
        if self.trail is not None:
            self.trail.decided(step.name.lower())
        if step is Step.RETURN:
            self._tell(EffectState.CONFIRMED)
            return _value(self._seals.opened(found.result_text))
        if step is Step.RECONCILE:
            remote = yield from self._reconcile(found)
            if remote is not None:
                return (yield from self._confirm(found.call, "reconcile", remote))
        elif step is Step.ASSUME:
            return (yield from self._confirm(found.call, "policy", Remote(None)))
        elif step not in (Step.SEND, Step.AGAIN):
            yield from self._refuse(step, found)
        if step is not Step.SEND:
            hit(Barrier.EFFECT_BEFORE_AGAIN)
            yield from self._written(lambda connection: self._book.again(connection, found.call, call))
        hit(Barrier.EFFECT_AFTER_PENDING)
        # Whoever was held up here for long sends nothing any more: another attempt may have, by now.
        self._owner.check()
        return (yield from self._send(in_doubt=in_doubt(step, found)))

    def _send(self, *, in_doubt: bool) -> Steps:
        declared = self._declared
        try:
            answer = yield Ask("send", lambda: declared.send(self._key, declared.request))
            if says_not_done(answer):
                raise EffectNotSent(f"send of effect {declared.name!r} returned NOT_DONE")
        except BaseException as error:
            # `send` speaks of its own request: that nothing came of this one settles no earlier one.
            surely = not in_doubt and not comes_of_another(error, declared.name)
            yield from self._leave(self._call, error, surely=surely)
            raise
        remote = remote_of(answer)
        hit(Barrier.EFFECT_AFTER_SEND)
        value = yield from self._confirm(self._call, "send", remote)
        hit(Barrier.EFFECT_AFTER_CONFIRM)
        return value

    def _reconcile(self, found: Found) -> Generator[Record | Ask, Any, Remote | None]:
        """Return what has come of the effect, or None if it has surely not happened."""
        reconcile = self._declared.reconcile
        assert reconcile is not None  # noqa: S101 - the decision is made by it
        hit(Barrier.EFFECT_BEFORE_RECONCILE)
        try:
            answer = yield Ask("reconcile", lambda: reconcile(self._key))
            if says_nothing(answer):
                raise answerless(self._declared.name, answer)
        except BaseException as error:
            yield from self._leave(found.call, error, surely=False)
            raise
        hit(Barrier.EFFECT_AFTER_RECONCILE)
        return None if says_not_done(answer) else remote_of(answer)

    def _confirm(self, call: UUID | None, by: SettledBy, remote: Remote) -> Steps:
        """Record that the effect has happened, and return the result as every later attempt will see it."""
        sealed = self._seals.result(remote)
        try:
            written: Written = yield Record(lambda connection: self._book.confirm(connection, call, by, sealed))
        except BaseException as error:  # a thread pool that closes cancels what waits there
            self._say(logging.ERROR, "an effect happened, but could not be recorded", remote)
            if is_a(error, LeaseLost):  # somebody held the job until its lease was over
                yield from self._report_late(sealed)
            raise
        if not written.held:
            yield from self._report_late(sealed)
            self._owner.lose()
        self._tell(EffectState.CONFIRMED)
        self._check_own(written)
        if remote.result_note is not None:
            raise unstorable(self._owner.job_id, self._declared.name, remote.result_note)
        return _value(remote.result_text)

    def _report_late(self, remote: Remote) -> Steps:
        self._say(logging.WARNING, "an effect happened after its lease was lost", remote)
        try:
            yield Record(lambda connection: self._book.report_late(connection, remote))
        except Exception:
            log.exception("the late effect could not be kept as evidence; this log is all that there is of it")

    def _leave(self, call: UUID | None, error: BaseException, *, surely: bool = True) -> Steps:
        """Record why the effect is not confirmed. Whatever that meets, the error itself goes on."""
        if is_a(error, GeneratorExit):
            return  # nobody drives this any more; pending says the same as uncertain
        sure = surely and issubclass(type(error), (SurelyNotDone, *self._declared.not_done))
        state = EffectState.NOT_DONE if sure else EffectState.UNCERTAIN
        failure = self._seals.failure(failure_of(error))
        self._tell(state)
        hit(Barrier.EFFECT_BEFORE_LEAVE)
        try:
            yield Record(lambda connection: self._book.leave(connection, call, state, failure.code, failure.message))
        except Exception as trouble:  # noqa: BLE001 - what `send` has raised says more
            facts = self._facts() | {"reason": type(trouble).__name__}
            log.warning("an effect's uncertainty could not be recorded; it stays pending", extra=facts)
        hit(Barrier.EFFECT_AFTER_LEAVE)

    def _refuse(self, step: Step, found: Found) -> Steps:
        """End the call for a reason that no further attempt will change by itself."""
        if step is Step.LOST:
            self._owner.lose()
        error = refusal(step, found, self._owner.job_id, self._declared.name)
        if isinstance(error, EffectOnHold) and found.state is EffectState.PENDING:
            yield from self._leave(found.call, error, surely=False)
        raise error

    def _written(self, run: Callable[[sa.Connection], Written]) -> Steps:
        written: Written = yield Record(run)
        if not written.held:
            self._owner.lose()
        self._check_own(written)

    def _check_own(self, written: Written) -> None:
        if not written.written:
            raise RuntimeError(f"the record of effect {self._declared.name!r} was changed by other hands meanwhile")

    def _tell(self, state: EffectState) -> None:
        if self.trail is not None:
            self.trail.settled(state.value)

    def _facts(self) -> dict[str, Any]:
        return {"job_id": str(self._owner.job_id), "attempt": self._owner.attempt, "effect": self._declared.name}

    def _say(self, level: int, event: str, remote: Remote) -> None:
        log.log(level, event, extra=self._facts() | {"remote_request_id": remote.request_id})


def _value(text: str | None) -> Any:
    return None if text is None else read_back(text)
