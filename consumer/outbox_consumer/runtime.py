"""The consumer process: which loops there are, what each owns, and how they start and stop.

One thread each receives hints, claims, beats, watches the clock, ends attempts, balances and (without a broker)
keeps time, on connections of their own. Handlers run on threads and loops that none of these share.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from outbox.leases.ending import Unstarted
from outbox.leases.identity import worker_identity
from outbox.leases.leasing import Claimed
from outbox.leases.presence import Presence, Role
from outbox.releasing.gleaning import Gleaner
from outbox.releasing.offering import Offering
from outbox.sealing.using import current
from outbox.sealing.vault import openable
from outbox.settings import Settings
from outbox.settings.queue_slots import QueueSlots
from outbox_consumer.basis.connections import Connections
from outbox_consumer.basis.copies import stay_in_this_process
from outbox_consumer.basis.counters import Counters
from outbox_consumer.basis.loops import Loop
from outbox_consumer.broker.receiver import Receiver
from outbox_consumer.contract.horizons import check_inbox_keys
from outbox_consumer.contract.registry import Lane, Registry, lane_of
from outbox_consumer.ending.ender import Ender
from outbox_consumer.ending.endings import Ending, How, overrun_ending, overrun_reason
from outbox_consumer.ending.refusals import Refusals
from outbox_consumer.holding.book import Entry, LeaseBook
from outbox_consumer.holding.entries import entry_of
from outbox_consumer.holding.heart import Heart, Watch
from outbox_consumer.holding.hints import Wake
from outbox_consumer.holding.rates import EndRates
from outbox_consumer.isolation.slots import ProcessSlots
from outbox_consumer.progress import ConsumerProgress, LoopAges
from outbox_consumer.running.applying import Applier
from outbox_consumer.running.attempt import Attempts
from outbox_consumer.running.slots import Slots, ThreadSlots
from outbox_consumer.running.tasks import LoopSlots
from outbox_consumer.taking.claiming import Claimer
from outbox_consumer.taking.governor import Governor
from outbox_consumer.taking.groups import Group, groups_of
from outbox_consumer.taking.taking import Taker
from outbox_consumer.taking.traces import Traces
from outbox_consumer.taking.turns import GroupTurn
from outbox_consumer.taking.waits import Waits
from outbox_consumer.telemetry import ConsumerTelemetry
from outbox_consumer.timekeeper import Timekeeper
from outbox_schemas import FailedBecause

__all__ = ["Consumer"]

log = logging.getLogger("outbox.consumer")

_CLAIM_JOIN_S = 5.0
_CLOSE_S = 5.0
_QUICK_CLOSE_S = 1.0
_LOOK_S = 0.05
_END_LOCK_S = 2.0
_CLAIM_STATEMENT_S = 15.0
# For what a cut connection still carries, and for a commit, which no time limit of a statement bounds.
_CLAIM_MARGIN_S = 15.0
_REHINT_AFTER_S = 10.0


class Consumer:
    """One consumer: `start`, then `drain` and `close`. Not restartable.

    Raises:
        SettingsError: no database is named, or an address can't be read.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        check_inbox_keys(registry.handlers(), settings.inbox_keep_s)
        self.settings = settings
        self.counters = Counters()
        self.died = threading.Event()
        self._registry = registry
        self._book = LeaseBook()
        self._worker = worker_identity()
        self._refusals = Refusals(self._worker)
        self._rates = EndRates()
        # Unless the operator named queues: those that the handlers' payload types name.
        named = "queues" in settings.consumer.model_fields_set
        self._queues = settings.consumer.queue_slots() if named else tuple(map(QueueSlots, registry.queues()))
        names = [queue.name for queue in self._queues]
        self._idle_queues = registry.check_queues(names)
        batch = settings.consumer.batch
        self._wake = Wake()
        self._groups = groups_of(self._queues, settings.consumer.concurrency, self._wake, batch=batch)
        lanes = len(registry.by_lane())
        self._connections = Connections(settings, sum(group.most_at_once(lanes) for group in self._groups))
        self._telemetry = ConsumerTelemetry(settings, self._connections, dead=self._dead)
        self._ender = Ender(
            self._connections.link("end", lock_s=_END_LOCK_S),
            self._book,
            self.counters,
            batch=batch,
            on_ended=self._freed,
            refusals=self._refusals,
            rates=self._rates,
            measure=self._telemetry.durations("outbox.consumer.end.duration"),
        )
        self._cancel_delays = self._telemetry.durations("outbox.consumer.cancel.delay")
        self._fill_groups()
        self._receiver = self._make_receiver()
        self._governor = Governor(self._groups, ender=self._ender, counters=self.counters)
        self._heart = self._make_heart()
        self._watch = Watch(self._book, on_overrun=self._overrun, on_lost=self._lose)
        self._claimer = self._make_claimer()
        presence = Presence(
            Role.CONSUMER,
            self._worker,
            queues=names,
            abilities=registry.abilities,
            ended_per_s=self._rates.per_s,
            key_ids=lambda: openable(current()),
        )
        offering = Offering(names, registry.abilities, openable(current()))
        link = self._connections.link("time")
        self._timekeeper = Timekeeper(link, self.broker_away, presence, self._refusals, offering)
        self._loops = self._make_loops()
        self._show()

    def start(self) -> None:
        """Start every loop and slot."""
        stay_in_this_process()
        for slots in self._all_slots():
            slots.start()
        for loop in self._loops.values():
            loop.start()
        self._telemetry.start()
        log.info(
            "consumer started",
            extra={
                "queues": ",".join(map(str, self._queues)),
                "kinds": ",".join(sorted({ability.kind for ability in self._registry.abilities})),
                "concurrency": self.settings.consumer.concurrency,
                "broker": self._receiver is not None,
                "worker": self._worker.name,
            },
        )
        if self._idle_queues:
            told = {"queues": ",".join(self._idle_queues)}
            if close := self._registry.like(self._idle_queues):
                told["did_you_mean"] = ",".join(close)
            log.warning("no handler's payload names these queues", extra=told)

    def share_tracing(self) -> None:
        """Have all code of this process trace where the consumer does, unless it has its own way."""
        self._telemetry.share()

    def broker_away(self) -> bool:
        """Tell whether any queue's work is to be taken straight from PostgreSQL now."""
        return any(self._is_away(group) for group in self._groups)

    def running(self) -> int:
        """Return how many attempts run now."""
        return sum(group.running() for group in self._groups)

    def drain(self, grace_s: float, let_go: Callable[[], bool]) -> bool:
        """Claim nothing more, return all hints, hand back uncharged what has not started, and wait for the rest.

        Takes `grace_s` seconds at most, less if `let_go` says so; tells whether all attempts have ended and are
        written.
        """
        until = time.monotonic() + grace_s
        self._telemetry.stopping()
        self._claimer.stop()
        for slots in self._all_slots():
            slots.hold()
        self._hand_back_unstarted()
        claim_until = min(until, time.monotonic() + _CLAIM_JOIN_S)
        while not self._loops["claim"].join(_LOOK_S) and time.monotonic() < claim_until and not let_go():
            pass
        if self._receiver is not None:
            self._receiver.stop()
        self._governor.stop()
        while True:
            self._hand_back_unstarted()
            if not len(self._book):
                return True
            if time.monotonic() >= until or let_go() or not self._loops["end"].is_alive():
                return False
            time.sleep(_LOOK_S)

    def close(self, *, quick: bool = False) -> None:
        """Stop what is left, within 5 seconds, `quick` within 1. Leases that are still held are left to expire."""
        until = time.monotonic() + (_QUICK_CLOSE_S if quick else _CLOSE_S)
        self._ender.stop()
        self._loops["end"].join(until - time.monotonic())
        for entry in self._book.entries():
            entry.job.mark_lost("the consumer has ended")
            entry.end_trail()
        self._heart.stop()
        self._watch.stop()
        self._timekeeper.stop()
        for slots in self._all_slots():
            slots.close()
        for loop in self._loops.values():
            loop.join(until - time.monotonic())
        self._telemetry.close(until - time.monotonic())
        self._connections.close()
        log.info("consumer stopped", extra=self.counters.snapshot())

    def _fill_groups(self) -> None:
        applier = Applier(self._connections.for_completions, self._connections.statements, self._connections.url)
        durations = self._telemetry.durations("outbox.consumer.handle.duration")
        for group in self._groups:
            attempts = Attempts(
                applier,
                self._ender,
                self._book,
                self.counters,
                measure=group.pace.measure,
                rates=self._rates,
                durations=durations,
            )
            group.slots.update(self._make_slots(group, attempts))

    def _make_slots(self, group: Group, attempts: Attempts) -> dict[Lane, Slots]:
        size, freed = group.size, group.inbox.freed
        slots: dict[Lane, Slots] = {}
        for lane, handlers in self._registry.by_lane().items():
            if lane is Lane.TASK:
                slots[lane] = LoopSlots(size, attempts, freed)
            elif lane is Lane.THREAD:
                slots[lane] = ThreadSlots(size, attempts, freed)
            else:
                slots[lane] = ProcessSlots(size, attempts, freed, handlers=handlers, settings=self.settings)
        return slots

    def _make_receiver(self) -> Receiver | None:
        address = self.settings.amqp()
        if address is None:
            return None
        receiver = Receiver(
            address,
            prefix=self.settings.amqp_prefix,
            queue_type=self.settings.queue_type,
            counters=self.counters,
            on_change=self._wake.poke,
        )
        for group in self._groups:
            group.stream = receiver.stream(group.queues, prefetch=group.wanted_prefetch(0), inbox=group.inbox)
        return receiver

    def _make_heart(self) -> Heart:
        shortest = min(ability.lease_s for ability in self._registry.abilities)
        return Heart(
            # A beat that hangs must leave room for another one within the lease.
            self._connections.link("heartbeat", statement_s=min(max(shortest / 3, 0.5), 10)),
            self._book,
            interval_s=self.settings.consumer.heartbeat_s,
            shortest_lease_s=shortest,
            on_lost=self._lose,
            on_cancelled=self._cancelled,
        )

    def _make_claimer(self) -> Claimer:
        link = self._connections.link("claim", statement_s=_CLAIM_STATEMENT_S)
        tracing = self._telemetry.tracing
        taker = Taker(
            link,
            self._registry,
            self._worker,
            book=self._book,
            counters=self.counters,
            entry_of=self._entry_of,
            deliver=self._deliver,
            claim_s=_CLAIM_STATEMENT_S + _CLAIM_MARGIN_S,
            traces=None if tracing is None else Traces(tracing, self._worker.version),
            waits=self._make_waits(),
        )
        turns = [
            GroupTurn(
                group,
                taker=taker,
                gleaner=Gleaner(link, abilities=self._registry.abilities, rehint_after_s=_REHINT_AFTER_S),
                counters=self.counters,
                batch=self.settings.consumer.batch,
                away=partial(self._is_away, group),
            )
            for group in self._groups
        ]
        return Claimer(turns, taker, self._wake)

    def _make_waits(self) -> Waits | None:
        release = self._telemetry.durations("outbox.consumer.release.delay")
        claim = self._telemetry.durations("outbox.consumer.claim.delay")
        return None if release is None or claim is None else Waits(release, claim)

    def _make_loops(self) -> dict[str, Loop]:
        bodies = {
            "claim": self._claimer.run,
            "heartbeat": self._heart.run,
            "watch": self._watch.run,
            "end": self._ender.run,
            "govern": self._governor.run,
            "time": self._timekeeper.run,
        }
        if self._receiver is not None:
            bodies["receive"] = self._receiver.run
        return {name: Loop(name, body, self._on_death) for name, body in bodies.items()}

    def _show(self) -> None:
        self._telemetry.read_counts(self.counters.snapshot, self._rates.totals, self._ender.failures)
        self._telemetry.read_leases(self._book.__len__, self._heart.age_s)
        self._telemetry.read_groups(self._groups)
        self._telemetry.read_progress(
            ConsumerProgress(
                LoopAges(
                    claim_turn=self._claimer.turn_s,
                    heartbeat=self._heart.age_s,
                    beat_every_s=self._heart.every_s,
                    written=self._ender.pulse.age_s,
                    keeping_turn=self._timekeeper.pulse.age_s,
                ),
                self._groups,
                book=self._book,
                counters=self.counters,
                connections=self._connections,
                abilities=self._registry.abilities,
                bound_s=self.settings.telemetry.stuck_after_s,
            )
        )

    def _dead(self) -> list[str]:
        return [name for name, loop in self._loops.items() if not loop.is_alive()]

    def _entry_of(self, claimed: Claimed, asked_at: float) -> Entry:
        return entry_of(claimed, self._registry.find(claimed.kind, claimed.version), self._connections, asked_at)

    def _deliver(self, group: Group, entries: Sequence[Entry], *, ahead: bool) -> None:
        # A backlog or a pause may have held them for longer than any policy could foresee.
        too_old = [entry for entry in entries if entry.is_too_old]
        if too_old:
            self._ender.put([Ending(entry, How.FAIL, because=FailedBecause.AGE_EXHAUSTED) for entry in too_old])
            entries = [entry for entry in entries if not entry.ending]
        group.submit(entries, ahead=ahead)

    def _hand_back_unstarted(self) -> None:
        for group in self._groups:
            self._ender.put([Ending(entry, How.HAND_BACK, unstarted=Unstarted.STOPPING) for entry in group.take_back()])

    def _overrun(self, entry: Entry) -> None:
        reason, code = overrun_reason(entry, time.monotonic())
        entry.job.close_calls()
        if not self._ender.put([overrun_ending(entry, reason, code)]):
            return  # it has come to its end, or to its `apply`, just now
        entry.job.mark_lost(reason)
        self._cancel(entry)

    def _lose(self, entry: Entry, reason: str) -> None:
        if self._book.lose(entry, reason):
            self.counters.add("leases_lost")
            facts = {"job_id": str(entry.lease.job_id), "attempt": entry.claimed.attempt, "reason": reason}
            log.warning("lease lost", extra=facts)
        self._cancel(entry)

    def _cancelled(self, ago_s: float) -> None:
        self.counters.add("cancelled")
        if self._cancel_delays is not None:
            self._cancel_delays.observe(max(ago_s, 0.0))

    def _cancel(self, entry: Entry) -> None:
        for group in self._groups:  # those that don't run it pass it over
            slots = group.slots.get(lane_of(entry.handler))
            if slots is not None:
                slots.cancel(entry)

    def _freed(self) -> None:
        for group in self._groups:
            group.inbox.freed()

    def _is_away(self, group: Group) -> bool:
        return group.stream is None or group.stream.away_s() >= self.settings.consumer.brokerless_after_s

    def _all_slots(self) -> list[Slots]:
        return [slots for group in self._groups for slots in group.slots.values()]

    def _on_death(self, name: str) -> None:
        del name
        self.died.set()
