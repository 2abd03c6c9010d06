"""What goes wrong in the demonstration, on purpose."""

import signal
import time
from uuid import UUID

from statements.demo.director import Director
from statements.demo.plan import DemoError
from statements.demo.stage import Process

_TRIES = 50


def kill_a_consumer(show: Director) -> None:
    """SIGKILL a consumer while it holds leases, put a fresh one in its place, and see the leases recovered.

    Raises DemoError when they are not recovered within the bound of a step.
    """
    before = show.tick().recovered
    victim = show.consumers()[0]
    held = _freeze_with_leases(show, victim)
    victim.kill()
    show.say(f"kill -9 {victim.name} (pid {victim.popen.pid}) while it holds {len(held)} leases")
    killed = time.monotonic()
    fresh = show.stage.start_consumer()
    show.say(f"{fresh.name} takes its place")
    _await_recovery(show, before + len(held))
    show.say(f"all {len(held)} leases recovered, {time.monotonic() - killed:.1f} s after the kill")


def pause_a_consumer(show: Director) -> None:
    """Freeze a consumer past its lease, let others finish its jobs, then let it go on with stale leases."""
    before = show.tick().recovered
    victim = show.consumers()[0]
    held = _freeze_with_leases(show, victim)
    show.say(f"SIGSTOP {victim.name} while it holds {len(held)} leases of {show.plan.lease_s:g} s")
    try:
        _await_recovery(show, before + len(held))
        show.wait_for(
            lambda _: show.observer.ended(held) == len(held),
            "its jobs to be finished by another consumer",
        )
    finally:
        victim.signal(signal.SIGCONT)
    show.say(f"SIGCONT {victim.name}: others have finished its jobs, its own late results must change nothing")


def restart_the_broker(show: Director) -> str | None:
    """Stop the broker while jobs flow, see new ones finished without it, and start it again.

    Returns why it was left out, or None.
    """
    broker = show.stage.broker
    if broker is None:
        return "the broker's restart, because there is no broker"
    if not broker.private:
        return "the broker's restart, because the broker was not started here"
    show.during(broker.stop, "the broker to stop")
    show.say("the broker is down")
    known = {item.job_id for item in list(show.load.accepted)}
    show.load.allow(show.plan.share(0.9))

    def since() -> int:
        return show.observer.succeeded({item.job_id for item in list(show.load.accepted)} - known)

    show.wait_for(lambda _: since() >= show.plan.share(0.03), "jobs to go on without the broker")
    show.say(f"{since()} statements asked for since then are finished, straight from PostgreSQL")
    show.during(broker.start, "the broker to start again")
    show.say("the broker is back")
    return None


def _freeze_with_leases(show: Director, victim: Process) -> frozenset[UUID]:
    """SIGSTOP the consumer at a moment when it holds leases; return the jobs. It is left stopped.

    Stopping first and looking then leaves no gap in which the leases could end.
    """
    for enough in (2, 1):  # several are more to look at, but one will do
        for _ in range(_TRIES):
            show.tick()
            victim.signal(signal.SIGSTOP)
            held = _settled(show, victim)
            if len(held) >= enough:
                return held
            victim.signal(signal.SIGCONT)
            show.load.allow_more()  # all that were asked for may have ended: then nobody would hold a lease again
            time.sleep(0.05)
    raise DemoError(f"{victim.name} was never seen with a lease")


def _settled(show: Director, victim: Process) -> frozenset[UUID]:
    # A statement that it sent before it stopped may still be running in the database. One that stopped inside the
    # transaction that completes a job is no good example: that job is neither lost nor free until it goes on.
    held = show.observer.held_by(victim.popen.pid)
    for _ in range(20):
        time.sleep(0.05)
        again = show.observer.held_by(victim.popen.pid)
        if again == held:
            break
        held = again
    return held if show.observer.unlocked(held) else frozenset()


def _await_recovery(show: Director, recovered: int) -> None:
    show.wait_for(lambda now: now.recovered >= recovered, "leases to be recovered")
