"""The relay as a process: its threads, how they are watched, and how they end.

The main thread does no work. It waits for a signal, and for the one thing that must never happen unseen: that
a thread dies while the process stays. Then the process ends with an error, and whoever started it starts it
again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from outbox.database.link import ONE_PLAN, Link
from outbox.database.statements import statements_for
from outbox.database.trouble import Fault, fault_of, reason_of
from outbox.database.waking import SESSION, Wakeups
from outbox.leases.identity import worker_identity
from outbox.leases.presence import Presence, Role
from outbox.processes.signals import Requests, counted_signals
from outbox.settings import Settings, load
from outbox_relay.bell import Bell
from outbox_relay.broker import Publisher
from outbox_relay.counters import Counters
from outbox_relay.errands import Errand, Errands
from outbox_relay.figures import figure_step
from outbox_relay.keeper import Keeper, Step, hint_step, time_steps
from outbox_relay.keys import key_step
from outbox_relay.lengths import RunwayTold
from outbox_relay.limited import limit_step
from outbox_relay.pauses import pause_step
from outbox_relay.progress import RelayProgress
from outbox_relay.purging import purge_steps
from outbox_relay.redrives import redrive_steps
from outbox_relay.release_loop import ReleaseLoop
from outbox_relay.schedules import schedule_steps
from outbox_relay.telemetry import RelayTelemetry
from outbox_relay.upkeep import upkeep_steps

__all__ = ["Relay", "make_relay", "run", "serve"]

log = logging.getLogger("outbox.relay")

DONE = 0
DEFECT = 4
HURRIED = 128
# A signal ends the wait; the death of a thread is looked for, and an event that somebody else may set.
WATCH_EVERY_S = 1.0
ASKED_EVERY_S = 0.1
REPORT_EVERY_S = 60.0
# Of the grace period, what is kept for closing the connection and handing back.
RESERVE_S = 3.0
# For so long at the end telemetry is exported.
CLOSE_S = 5.0


def run(settings: Settings | None = None, *, stop: threading.Event | None = None) -> int:
    """Run a relay until SIGTERM, SIGINT or `stop`, and return its exit code.

    Args:
        settings: all settings; None loads them from the environment and the file that it names.
        stop: ends the relay when set. Signals are handled too if this is the main thread.

    Returns:
        0 after an orderly end; 4 if a thread died of a defect; 128 + the signal's number if a second signal
        cut the end short.

    Raises:
        SettingsError: no database is named, or a setting is refused.

    It starts whether or not the servers can be reached, and waits for them. Without an AMQP URL it only keeps
    time.
    """
    return serve(make_relay(settings, stop))


def make_relay(settings: Settings | None = None, stop: threading.Event | None = None) -> Relay:
    """Return a relay that has not started, with all that it needs loaded. Raises what `run` does."""
    settings = settings if settings is not None else load()
    settings.conninfo()  # refuses a missing address before any thread is started
    return Relay(settings, stop)


def serve(relay: Relay) -> int:
    """Start a relay and see it through, as `run` does."""
    with counted_signals() as requests:
        return relay.run(requests)


class Relay:
    """One relay as a process. Not restartable."""

    def __init__(self, settings: Settings, asked: threading.Event | None = None) -> None:
        self._settings = settings
        self._asked = asked
        self._stop = threading.Event()
        self._wake = Bell()
        self._news = threading.Event()
        self._counters = Counters()
        self._errands = Errands(settings.relay.sweep_every_s)
        self._drain_until = 0.0
        self._threads: list[threading.Thread] = []
        self._died: list[str] = []
        self._loop: ReleaseLoop | None = None
        self._turns: dict[str, Callable[[], float]] = {}
        self._telemetry = RelayTelemetry(
            settings, self._counters, link=lambda: self._link("health", statement_s=2.0), dead=self._dead
        )
        self._publisher = self._make_publisher()

    def run(self, requests: Requests) -> int:
        """Work until somebody asks for the end, and return the exit code."""
        self._start()
        self._watch(requests)
        asked_at = time.monotonic()
        grace_s = self._settings.relay.grace_s
        self._drain_until = asked_at + grace_s - min(RESERVE_S, grace_s / 2)
        self._telemetry.stopping()
        self._stop.set()
        self._wake.set()
        log.info("the relay stops", extra={"grace_s": grace_s})
        hurried = self._join(requests, asked_at + grace_s)
        if self._died and self._publisher is not None:
            self._publisher.close(RESERVE_S / 2)  # otherwise the release thread has done it
        if not any(thread.is_alive() for thread in self._threads):
            self._wake.close()
        self._telemetry.close(CLOSE_S)
        log.info("the relay has stopped", extra=self._counters.snapshot())
        if self._died:
            return DEFECT
        return HURRIED + requests.last if hurried else DONE

    def _start(self) -> None:
        settings, counters, errands = self._settings, self._counters, self._errands
        log.info("the relay starts", extra={"schema": settings.schema_name, "broker": self._publisher is not None})
        self._spawn("time", self._time())
        self._keep("hints", [hint_step(self._publisher, settings.relay, counters, self._owed)])
        redrives, over = redrive_steps(counters, self._owed)
        self._keep(
            "upkeep",
            [
                *upkeep_steps(counters, settings.inbox_keep_s),
                errands.only(Errand.REDRIVES, redrives),
                over,
                figure_step(),
            ],
        )
        schedules = [errands.only(Errand.SCHEDULES, step) for step in schedule_steps(counters, self._owed)]
        self._keep("schedules", schedules)  # alone: they wait for no other work
        purging = purge_steps(settings.retention, settings.relay.sweep_every_s, counters)
        if purging:  # alone: its long turns would slow redrives down
            self._keep("purge", purging)
        if self._publisher is None:
            log.warning("no AMQP URL is set: the relay keeps time only, and consumers take jobs from the database")
        else:
            self._publisher.start()
            self._spawn("release", self._release(self._publisher))
        self._telemetry.read_publisher(self._publisher, self._runways)
        self._telemetry.read_progress(
            RelayProgress(
                self._publisher,
                self._loop,
                counters=counters,
                keeping=self._turns,
                bound_s=settings.telemetry.stuck_after_s,
            )
        )
        self._telemetry.start()

    def _keep(self, name: str, steps: Sequence[Step]) -> None:
        keeper = Keeper(name, self._link(name), steps, self._settings.relay, stop=self._stop)
        self._turns[name] = keeper.turn_s
        self._spawn(name, keeper.run)

    def _time(self) -> Callable[[], None]:
        """Return the time-keeping thread's whole life: sweep, and say that the process lives, and left."""
        link = self._link("time")
        presence = Presence(Role.RELAY, worker_identity(), runways=self._runways)
        errands, counters = self._errands, self._counters
        # Pauses first: they hold within two seconds, whatever the others have to do.
        steps = [
            errands.look,
            errands.only(Errand.PAUSES, pause_step(counters, self._owed)),
            errands.only(Errand.LIMITS, limit_step(counters, self._owed)),
            *time_steps(counters, self._owed),
            errands.only(Errand.KEYS, key_step(counters, self._owed)),
            presence.tell,
        ]
        keeper = Keeper("time", link, steps, self._settings.relay, stop=self._stop)
        self._turns["time"] = keeper.turn_s

        def live() -> None:
            keeper.run()
            presence.leave(link)
            link.close()

        return live

    def _runways(self) -> Mapping[str, RunwayTold]:
        """Return how long the runways are now: none, as long as nothing is released."""
        return {} if self._loop is None else self._loop.runways()

    def _make_publisher(self) -> Publisher | None:
        address = self._settings.amqp()
        if address is None:
            return None
        return Publisher(address, self._settings, self._wake, self._telemetry.confirmed)

    def _dead(self) -> list[str]:
        idle = [] if self._stop.is_set() else [thread.name for thread in self._threads if not thread.is_alive()]
        return [*self._died, *idle]

    def _link(self, name: str, *, durable: bool = True, session: str = "", statement_s: float = 15) -> Link:
        url = self._settings.database_url
        return Link(
            url.get_secret_value() if url is not None else None,
            statements_for(self._settings.schema_name),
            name=f"outbox-relay/{name}",
            durable=durable,
            session=session,
            statement_timeout_s=statement_s,
        )

    def _owed(self) -> None:
        """Have the release loop look at once, and everywhere: what is owed again keeps its old place in line."""
        self._news.set()
        self._wake.set()

    def _release(self, publisher: Publisher) -> Callable[[], None]:
        """Return the release thread's whole life: release, wait for confirms, close, hand back the rest."""
        # A release that a crash of the server forgets is owed still: its hint goes out twice, which harms nothing.
        link = self._link("release", durable=False, session=ONE_PLAN)
        wakeups = (
            Wakeups(self._link("listen", session=SESSION), self._wake.set) if self._settings.relay.wakeups else None
        )
        if wakeups is not None:
            self._wake.also = wakeups.fileno
        loop = ReleaseLoop(
            link,
            publisher,
            self._settings.relay,
            self._counters,
            stop=self._stop,
            wake=self._wake,
            news=self._news,
            wakeups=wakeups,
            releases=self._telemetry.releases,
        )
        self._loop = loop

        def live() -> None:
            loop.run()
            if wakeups is not None:
                wakeups.close()
            loop.finish(self._drain_until)
            publisher.close(RESERVE_S / 2)
            try:
                loop.hand_back()
            except Exception as error:
                log.warning(
                    "hints could not be handed back; they are found again later",
                    extra={"reason": reason_of(error)},
                    exc_info=error if fault_of(error) is Fault.UNKNOWN else None,
                )
            link.close()

        return live

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                target()
            except BaseException as error:
                log.critical("a thread of the relay died", extra={"loop": name}, exc_info=error)
                self._died.append(name)

        thread = threading.Thread(target=guarded, name=f"outbox-relay-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _watch(self, requests: Requests) -> None:
        """Wait until somebody asks for the end, or a thread has died."""
        reported, told_at = self._counters.snapshot(), time.monotonic()
        while not (requests.count or self._died or (self._asked is not None and self._asked.is_set())):
            requests.wait(WATCH_EVERY_S if self._asked is None else ASKED_EVERY_S)
            if self._publisher is not None and not self._publisher.alive:
                self._died.append("broker")
            if time.monotonic() - told_at >= REPORT_EVERY_S:
                told_at, now = time.monotonic(), self._counters.snapshot()
                if now != reported:
                    log.info("so far", extra=now)
                    reported = now

    def _join(self, requests: Requests, deadline: float) -> bool:
        """Wait for the threads, until `deadline` or a second signal; return whether a signal cut it short."""
        while any(thread.is_alive() for thread in self._threads):
            if requests.count > 1:
                return True
            if time.monotonic() >= deadline:
                log.warning("the grace period is over; what is still open is found again later")
                return False
            time.sleep(0.02)
        return False
