"""The order of the scenes."""

import signal
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Self

import httpx

from outbox.servers.ports import free_port
from statements.accounts import Accounts
from statements.database import open_engine
from statements.demo import cards, faults
from statements.demo.director import Director
from statements.demo.evidence import gather
from statements.demo.found import check_found
from statements.demo.load import Load, keys
from statements.demo.observe import Observer
from statements.demo.plan import DemoError, Plan
from statements.demo.screen import Screen
from statements.demo.stage import Process, Stage, open_stage
from statements.demo.verdict import Verdict, judge

# Each scene begins when this part of the work is done and may use it up to that part, so that none finds everything
# done already, however slow the machine; the last part is for the broker's absence and return.
_SCENES = (
    (faults.kill_a_consumer, 0.05, 0.3),
    (faults.pause_a_consumer, 0.35, 0.6),
    (faults.restart_the_broker, 0.62, 0.7),
)


def run(*, quiet: bool = False, plan: Plan | None = None) -> Verdict:
    """Run the demonstration; `quiet` keeps standard output free of it.

    Raises DemoError when it could not be carried out, NoServer when it has nothing to run on (a broker that the
    environment names and that can't be used counts), SettingsError when an address in the environment can't be read,
    and KeyboardInterrupt on SIGINT or SIGTERM. Everything that was started has ended by then.
    """
    check_found()
    with _Interrupts() as interrupts, Screen(quiet=quiet) as screen:
        verdict = _perform(plan or Plan(), screen, interrupts)
        screen.show(verdict)
        return replace(verdict, seconds=round(screen.elapsed_s, 1))


def _perform(plan: Plan, screen: Screen, interrupts: "_Interrupts") -> Verdict:
    wanted = keys(Accounts.load(), plan.statements)
    with open_stage(plan, screen.say) as stage:
        try:
            account = cards.expired_account(Accounts.load())
            url, remotes_url = _start(stage, account)
            engine = open_engine(stage.database_url, pool_size=2)
            load = Load(url, wanted, plan)
            interrupts.deferred = True
            try:
                show = Director(stage, Observer(engine), load, screen, interrupts.check)
                skipped = _scenes(show)
                redriven = _settle(show, remotes_url, account)
                verdict = judge(gather(show.observer, load, stage, redriven=redriven))
                return replace(verdict, skipped=skipped)
            finally:
                load.close()
                engine.dispose()
        except DemoError:
            _show_logs(stage, screen)
            raise


def _start(stage: Stage, expired: str) -> tuple[str, str]:
    """Start everything; return the addresses of the service and of the remote services."""
    remotes_url = _start_remotes(stage, expired)
    port = free_port()
    service = stage.start_service(port)
    stage.start_relay()
    for _ in range(2):
        stage.start_consumer()
    url = f"http://127.0.0.1:{port}"
    _await_answer(service, f"{url}/health", stage.plan.start_s)
    return url, remotes_url


def _start_remotes(stage: Stage, expired: str) -> str:
    port = free_port()
    remotes = stage.start_remotes(port, expired)
    url = f"http://127.0.0.1:{port}"
    _await_answer(remotes, f"{url}/charges", stage.plan.start_s)
    return url


def _scenes(show: Director) -> list[str]:
    """Play every scene, until each statement is rendered; return the reasons of those that were left out."""
    plan = show.plan
    names = ", ".join(process.name for process in show.stage.processes if process.running)
    show.say(f"running: {names}")
    show.say(f"asking for {plan.statements} statements, each twice at the same moment")
    show.load.start()
    skipped: list[str] = []
    for scene, begin, end in _SCENES:
        show.load.allow(plan.share(end))
        _await_succeeded(show, plan.share(begin))
        reason = scene(show)
        if reason is not None:
            show.say(f"skipped: {reason}")
            skipped.append(reason)
    show.load.allow(plan.statements)
    show.wait_for(lambda _: show.load.done(), "every request to be answered", plan.drain_s)
    show.say("every request is answered")
    show.wait_for(lambda now: now.ended >= plan.statements, "every statement to be rendered", plan.drain_s)
    return skipped


def _settle(show: Director, remotes_url: str, account: str) -> int:
    """See what follows from the statements end, and the processes; return how many dead letters were redriven."""
    show.wait_for(lambda now: now.following == 0, "every charge and mail to end", show.plan.drain_s)
    redriven = cards.renew_and_redrive(show, remotes_url, account)
    show.say("every job has ended; stopping the processes, then checking")
    show.during(show.stage.stop_processes, "the processes to stop")
    return redriven


def _await_succeeded(show: Director, enough: int) -> None:
    show.wait_for(lambda now: now.succeeded >= enough, f"{enough} statements to be finished")


def _await_answer(service: Process, url: str, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while True:
        try:
            if httpx.get(url, timeout=2, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        if not service.running:
            raise DemoError(f"{service.name} ended with exit status {service.popen.returncode}")
        if time.monotonic() > until:
            raise DemoError(f"{service.name} did not answer within {limit_s:g} s")
        time.sleep(0.1)


def _show_logs(stage: Stage, screen: Screen) -> None:
    failed = [process for process in stage.processes if not process.running and not process.expected_to_end]
    for process in failed or stage.processes:
        screen.tail(process.name, _read(process.log))


def _read(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except OSError:
        return "(no log)"


class _Interrupts:
    """Ctrl-C and SIGTERM. While the show runs, the first one waits for the next look at everything: raised just
    anywhere, it could leave a thread pool half started, and the end would wait for that for ever.
    """

    def __init__(self) -> None:
        self.deferred = False
        self._asked = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def check(self) -> None:
        """Raise what was put off."""
        if self._asked:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked or not self.deferred:
            raise KeyboardInterrupt
        self._asked = True
