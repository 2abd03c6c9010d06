"""What only this project is measured by: writers at once, `apply`, sleeping handlers, idleness."""

from __future__ import annotations

from contenders.bare_apply import bare_apply
from contenders.workload import SLEEP_S

from measure.arena import Seat
from measure.contender import NO_EXTRA
from measure.drain import drain
from measure.idling import idle
from measure.latency import warm_up
from measure.run import Run
from measure.submitting import Crew
from measure.targets import BARE, BARE_SESSION, OURS

WRITERS = 8
SLOTS = 50


def writers(run: Run, seat: Seat, number: int, seconds: float) -> None:
    """Eight writers at once beside a relay and a consumer, with the relay's wake-up on and off."""
    quiet = seat.servers.folder / "quiet.toml"
    quiet.write_text("[relay]\nwakeups = false\n", encoding="utf-8")
    states = {"on": NO_EXTRA, "off": {"OUTBOX_CONFIG": str(quiet)}}
    order = list(states) if number % 2 == 0 else list(reversed(states))
    with run.measuring(seat, "eight writers", number, 120) as values, Crew(seat, WRITERS) as crew:
        for state in order:
            seat.fresh()
            processes = seat.contender.start(1, extra=states[state])
            with seat.contender.submitter() as writer:
                warm_up(seat, writer, -1000)
            values.put_all({f"writers_{state}": crew.rate(seconds)})
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


def traces(run: Run, seat: Seat, number: int, jobs: int) -> None:
    """Drain with spans written to a file, within the usual budget, and with nothing traced."""
    file = seat.servers.folder / "spans.jsonl"
    states = {"on": {"OUTBOX_TELEMETRY_SPANS_FILE": str(file)}, "off": NO_EXTRA}
    order = list(states) if number % 2 == 0 else list(reversed(states))
    with run.measuring(seat, "drains with and without traces", number, 240) as values:
        rates = {f"traces_{state}": drain(seat, workers=1, jobs=jobs, extra=states[state]).rate for state in order}
        values.put_all(rates)


def applies(run: Run, seat: Seat, number: int, jobs: int) -> None:
    """One row a job in the transaction that completes it, against the bare transaction."""
    with run.measuring(seat, "apply", number, 120) as values:
        values.put(OURS, apply=drain(seat, workers=1, jobs=jobs).rate)
    with run.measuring(seat, "apply, bare", number, 120) as values:
        values.put(BARE, apply=bare_apply(seat, jobs=jobs))
    with run.measuring(seat, "apply, bare Session", number, 120) as values:
        values.put(BARE_SESSION, apply=bare_apply(seat, jobs=jobs, session=True))


def sleeps(run: Run, seat: Seat, number: int, jobs: int) -> None:
    """Five milliseconds of sleep in fifty slots, as a share of what fifty slots could do at most."""
    with run.measuring(seat, "5 ms of sleep", number, 120) as values:
        rate = drain(seat, workers=1, jobs=jobs, extra={"OUTBOX_CONSUMER_CONCURRENCY": str(SLOTS)}).rate
        values.put(OURS, sleep=rate / (SLOTS / SLEEP_S))


def idles(run: Run, seat: Seat, number: int, settle_s: float, seconds: float) -> None:
    """Nothing to do."""
    with run.measuring(seat, "idle", number, 90) as values:
        measured = idle(seat, settle_s=settle_s, seconds=seconds)
        values.put(idle_cpu=measured.cpu_percent, idle_statements=measured.statements)
