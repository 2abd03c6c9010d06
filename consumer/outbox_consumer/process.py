"""`run_consumer`: a consumer as a process, with its signals and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outbox.processes.signals import counted_signals
from outbox.sealing.using import use_file
from outbox.settings import Settings, load
from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.contract.registry import Registry, load_handlers
from outbox_schemas import SettingsError
from outbox_schemas.names import nature_of

if TYPE_CHECKING:
    from outbox_consumer.runtime import Consumer

__all__ = ["make_consumer", "run_consumer", "serve"]

log = logging.getLogger("outbox.consumer")

# A signal ends the wait; the end of a loop is looked for, and an event that somebody else may set.
_WATCH_S = 1.0
_ASKED_EVERY_S = 0.1


def run_consumer(
    *handlers: AnyHandler | str, settings: Settings | None = None, stop: threading.Event | None = None
) -> int:
    """Consume until told to stop. Returns 0 if everything that ran has ended, 1 if work was let go or a loop died.

    Args:
        handlers: handler instances, or names as for `outbox consume` (`MODULE`, `MODULE:NAME`).
        settings: default: from the environment, as the command does.
        stop: ends the consumer as SIGTERM does. On the main thread SIGTERM and SIGINT are listened to as well.

    The first signal stops claiming, hands unstarted work back and waits for running handlers up to
    `consumer.grace_s`; the second, or the end of the grace period, lets
    go: what still runs is not waited for, and its leases expire.

    Raises:
        HandlerError: the handlers are declared wrongly.
        SettingsError: the settings are, the key file can't be used, or `settings` or `stop` is something else.
    """
    if stop is not None and not (callable(getattr(stop, "wait", None)) and callable(getattr(stop, "set", None))):
        raise SettingsError(f"stop must be a threading.Event, not {nature_of(stop)}")
    return serve(make_consumer(handlers, settings), stop)


def make_consumer(handlers: Sequence[AnyHandler | str], settings: Settings | None) -> Consumer:
    """Return a consumer that has not started, with all that it needs loaded. Raises what `run_consumer` does."""
    # Only a running consumer needs the broker's client: a service may import handler classes without that extra.
    from outbox_consumer.runtime import Consumer  # noqa: PLC0415

    names = [item for item in handlers if isinstance(item, str)]
    instances = [item for item in handlers if not isinstance(item, str)]
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError(
            f"settings must be a Settings, for example outbox.settings.load(), not {nature_of(settings)}; "
            "leave it out to have the environment's"
        )
    registry = load_handlers(names) if not instances else Registry([*instances, *_instances(names)])
    settings = settings or load()
    use_file(settings.keys_file)
    return Consumer(settings, registry)


def serve(consumer: Consumer, stop: threading.Event | None = None) -> int:
    """Start a consumer and see it through, as `run_consumer` does."""
    watch_s = _WATCH_S if stop is None else _ASKED_EVERY_S
    stop = stop or threading.Event()
    consumer.share_tracing()
    with counted_signals() as requests:
        consumer.start()
        while not (stop.is_set() or requests.count or consumer.died.is_set()):
            requests.wait(watch_s)
        # Whoever shares this event learns of a signal, too. Not in the signal's own handler: it may have interrupted
        # this thread while it holds the event's lock.
        stop.set()
        log.info("consumer stopping", extra={"running": consumer.running()})
        finished = consumer.drain(consumer.settings.consumer.grace_s, lambda: requests.count > 1)
        if not finished:
            log.warning("work was let go; its leases expire by themselves", extra={"running": consumer.running()})
        consumer.close(quick=not finished)
    return 0 if finished and not consumer.died.is_set() else 1


def _instances(names: Sequence[str]) -> list[AnyHandler]:
    return load_handlers(names).handlers() if names else []
