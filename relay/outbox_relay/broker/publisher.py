"""The publisher: a thread that owns the connection to the broker, behind a thread-safe face.

The thread runs pika's event loop and nothing else, so heartbeats are served whatever the database or the rest
of this process does. It connects, and connects again, for as long as it lives.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum

from pika.adapters.select_connection import IOLoop

from outbox.amqp.connector import Connector
from outbox.logs import RateLimited
from outbox.processes.backoff import Backoff
from outbox.releasing.relaying import ReleasedHint
from outbox.settings import Settings
from outbox.settings.urls import AmqpAddress
from outbox_relay.broker.session import Session, SessionSettings
from outbox_relay.messages import Message, Settled, Spans, pack
from outbox_relay.window import Window
from outbox_schemas.topology import broker_queue, queue_arguments

__all__ = ["BrokerState", "Publisher"]

log = logging.getLogger("outbox.relay")

TICK_S = 0.25
CLOSE_WITHIN_S = 1.0
# Until a new connection has confirmed something, no more than this is risked on it: a broker that takes
# connections and then blocks or refuses would otherwise cost a full window each time.
PROBE = 16


class BrokerState(StrEnum):
    """What the broker is to us now."""

    CONNECTING = "connecting"
    READY = "ready"
    BLOCKED = "blocked"
    REFUSED = "refused"
    """It answers, but not to this user or virtual host. Tried again all the same."""
    CLOSED = "closed"


class Publisher:
    """Publishes hints with confirms. All may be called from any thread; only `depth` and `close` wait.

    Args:
        address: the broker.
        settings: prefix, queue type and the relay's window, timeouts and message size are taken from here.
        wake: set whenever outcomes can be taken or the state has changed.
        measure: is told in how many seconds the confirm of each message came.
    """

    def __init__(
        self,
        address: AmqpAddress,
        settings: Settings,
        wake: threading.Event,
        measure: Callable[[float], None] | None = None,
    ) -> None:
        self._address = address
        self._prefix = settings.amqp_prefix
        self._relay = settings.relay
        self._session_settings = SessionSettings(
            settings.amqp_prefix, queue_arguments(settings.queue_type), settings.relay.confirm_timeout_s
        )
        self._wake = wake
        self._window = Window(settings.relay.window, wake, measure)
        self._limited = RateLimited(log)
        self._inbox: deque[Message] = deque()
        self._lock = threading.Lock()
        self._loop: IOLoop | None = None
        self._session: Session | None = None
        self._connector: Connector | None = None
        self._stopping = threading.Event()
        self._state = BrokerState.CONNECTING
        self._away_since = time.monotonic()
        self._connections = 0
        # For how long in all, without the time since the instant beside it; replaced as one, for readers elsewhere.
        self._blocked: tuple[float, float | None] = (0.0, None)
        self._absent: tuple[float, float | None] = (0.0, self._away_since)
        self._thread = threading.Thread(target=self._run, name="outbox-relay-broker", daemon=True)

    def start(self) -> None:
        """Start the thread; it connects by itself."""
        self._thread.start()

    @property
    def state(self) -> BrokerState:
        """What the broker is to us now."""
        return self._state

    @property
    def alive(self) -> bool:
        """False once the thread has ended."""
        return self._thread.is_alive()

    @property
    def away_s(self) -> float:
        """Seconds for which there has been no connection; 0 while there is one."""
        return 0.0 if self._state in (BrokerState.READY, BrokerState.BLOCKED) else time.monotonic() - self._away_since

    @property
    def connections(self) -> int:
        """How many connections have been made since the start."""
        return self._connections

    @property
    def blocked_s(self) -> float:
        """For how many seconds in all the broker has blocked us since the start."""
        before_s, since = self._blocked
        return before_s + (0.0 if since is None else time.monotonic() - since)

    @property
    def absent_s(self) -> float:
        """For how many seconds in all there has been no connection since the start."""
        before_s, since = self._absent
        return before_s + (0.0 if since is None else time.monotonic() - since)

    @property
    def unready_s(self) -> float:
        """For how many seconds the broker has been away, or has blocked us; 0 while it is ready."""
        blocked_since = self._blocked[1]
        return self.away_s if blocked_since is None else time.monotonic() - blocked_since

    def unanswered_s(self, lately_s: float) -> float:
        """Return for how many seconds the broker has answered nothing of what is out, or went out lately."""
        return self._window.unanswered_s(lately_s)

    @property
    def free(self) -> int:
        """How many hints `publish` takes now; 0 unless the broker is ready."""
        session = self._session
        if self._state is not BrokerState.READY or session is None:
            return 0
        return self._window.free(None if session.proven else PROBE)

    @property
    def answering(self) -> bool:
        """True while there is a connection that isn't blocked."""
        return self._state is BrokerState.READY

    @property
    def outstanding(self) -> int:
        """Messages without an outcome."""
        return self._window.outstanding

    def publish(
        self,
        queue: str,
        hints: Sequence[ReleasedHint],
        together: int = 1,
        *,
        ahead: bool = False,
        spans: Spans | None = None,
    ) -> None:
        """Send no more hints than `free`; the outcome of each follows by `outcomes`, exactly once. `together`: how many
        may share a message, however few they are. `ahead`: they go ahead of all that are out. `spans`: gives traced
        messages theirs.
        """
        messages = pack(queue, hints, self._relay.ids_per_message, together, ahead=ahead)
        if spans is not None:
            messages = spans.traced(messages)
        self._window.admit(messages)
        self._inbox.extend(messages)
        if not self._post(self._drain):
            self._forget_all()

    def outcomes(self) -> list[Settled]:
        """Return what has been decided since the last call."""
        return self._window.take()

    def depth(self, queue: str, timeout_s: float) -> int | None:
        """Return how many messages wait in a queue: 0 for a missing one, None if nobody tells in time."""
        future: concurrent.futures.Future[int | None] = concurrent.futures.Future()

        def answer(depth: int | None) -> None:
            if not future.done():
                future.set_result(depth)

        def ask() -> None:
            if self._session is None or self._state is not BrokerState.READY:
                answer(None)
            else:
                self._session.topology.depth(broker_queue(self._prefix, queue), answer)

        if not self._post(ask):
            return None
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            return None

    def close(self, timeout_s: float) -> bool:
        """Cut off what is out, close the connection, end the thread; return whether it ended in time."""
        self._stopping.set()
        self._post(lambda: self._shut(min(CLOSE_WITHIN_S, timeout_s / 2)))
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _post(self, call: Callable[[], None]) -> bool:
        """Have the thread call `call`; return False if there is no loop to do so."""
        with self._lock:
            if self._loop is None:
                return False
            self._loop.add_callback_threadsafe(call)
            return True

    # ---- everything below runs on the thread ----

    def _run(self) -> None:
        backoff = Backoff(0.2, self._relay.connect_backoff_max_s)
        while not self._stopping.is_set():
            try:
                self._live()
            except Exception as error:  # noqa: BLE001 - a defect must neither end the relay silently nor lose a hint
                self._limited.log(logging.ERROR, "the publisher failed and starts again", exc_info=error)
                self._stopping.wait(backoff.next_s())
        self._set_state(BrokerState.CLOSED)

    def _live(self) -> None:
        """Run one event loop until it stops or fails; nothing that was handed over survives undecided."""
        loop = IOLoop()
        connector = Connector(
            loop,
            self._address,
            name="outbox-relay",
            backoff_max_s=self._relay.connect_backoff_max_s,
            limited=self._limited,
            opened=self._opened,
            closed=self._closed,
        )
        with self._lock:
            self._loop, self._connector = loop, connector
        try:
            connector.connect()
            loop.call_later(TICK_S, self._tick)
            if not self._stopping.is_set():
                loop.start()
        finally:
            with self._lock:
                self._loop = None
            self._lose_session()
            self._forget_all()
            self._set_state(BrokerState.CONNECTING)
            connector.abandon()
            loop.close()

    def _opened(self) -> None:
        connector = self._connector
        if connector is None or connector.connection is None:
            return
        self._connections += 1
        self._session = Session(
            connector.connection,
            self._session_settings,
            self._window,
            self._limited,
            changed=self._reconsider,
            failed=connector.give_up,
        )

    def _closed(self, *, refused: bool) -> None:
        self._lose_session()
        self._set_state(BrokerState.REFUSED if refused else BrokerState.CONNECTING)

    def _reconsider(self) -> None:
        session, connector = self._session, self._connector
        if session is None or connector is None:
            return
        if session.proven:
            connector.backoff.reset()
        if session.ready:
            self._set_state(BrokerState.BLOCKED if session.blocked else BrokerState.READY)

    def _drain(self) -> None:
        while self._inbox:
            message = self._inbox.popleft()
            if self._session is None:
                self._window.cut_off([message])
            else:
                self._session.publish(message)
        if self._session is not None:
            self._session.flush()

    def _forget_all(self) -> None:
        """Settle all that was handed over, whatever had become of it: there is nobody any more to answer for it."""
        self._inbox.clear()
        self._window.cut_off_all()

    def _lose_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.lost()

    def _tick(self) -> None:
        if self._loop is not None:
            self._loop.call_later(TICK_S, self._tick)
        if self._session is not None:
            self._session.tick()

    def _shut(self, within_s: float) -> None:
        self._lose_session()
        if self._connector is not None:
            self._connector.close(within_s)

    def _set_state(self, state: BrokerState) -> None:
        connected = (BrokerState.READY, BrokerState.BLOCKED)
        if state not in connected and self._state in connected:
            self._away_since = time.monotonic()
        if (state in connected) is not (self._absent[1] is None):
            self._absent = (self.absent_s, None if state in connected else time.monotonic())
        self._blocked = (self.blocked_s, time.monotonic() if state is BrokerState.BLOCKED else None)
        self._state = state
        self._wake.set()
