"""Servers, a database and processes of one run; whatever was started here ends with it, however it ends."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from outbox.servers import NoBroker, Postgres, RabbitMQ, postgres, rabbitmq
from outbox.servers.instance import Instance, tail
from outbox.settings import load
from outbox_schemas.topology import broker_queue
from statements.demo.found import usable
from statements.demo.plan import DemoError, Plan
from statements.demo.tidy import delete_queue
from statements.payloads import RenderStatement

Say = Callable[[str], None]
_EXAMPLES = Path(__file__).parents[2]
_OUTBOX = "import sys; from outbox.cli.root import main; sys.exit(main())"


@dataclass
class Process:
    """One child process: what it is called, where it writes, and whether its end is expected."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    expected_to_end: bool = False

    @property
    def running(self) -> bool:
        """Tell whether it has not ended."""
        return self.popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has ended is fine."""
        with suppress(ProcessLookupError):
            os.kill(self.popen.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL and wait until it is gone."""
        self.expected_to_end = True
        self.signal(signal.SIGKILL)
        self.popen.wait(10)


class Stage:
    """What one run stands on."""

    def __init__(self, plan: Plan, instance: Instance, database_url: str, prefix: str) -> None:
        self.plan = plan
        self.database_url = database_url
        self.broker: RabbitMQ | None = None
        self.store = instance.make_folder("store")
        self.ledgers = instance.make_folder("ledgers")
        self.processes: list[Process] = []
        self._instance = instance
        self._environment = _environment(plan, self.store) | {
            "OUTBOX_DATABASE_URL": database_url,
            "OUTBOX_AMQP_PREFIX": prefix,
        }

    def use_broker(self, broker: RabbitMQ | None) -> None:
        """Let processes that start from now on use this broker, or none."""
        self.broker = broker
        self._environment["OUTBOX_AMQP_URL"] = "" if broker is None else broker.url
        load(env=self._environment)  # a mistake is found here, and the passwords are masked from now on

    def migrate(self) -> None:
        """Create the tables of outbox-relay and of the service, as a deployment does."""
        self._run_to_end("migration", _outbox("db", "upgrade"))
        self._run_to_end("tables", _module("statements"))

    def start_service(self, port: int) -> Process:
        """Start the HTTP service on loopback."""
        arguments = ["--factory", "statements.api:from_environment", "--host", "127.0.0.1", "--no-access-log"]
        return self._spawn("service", [*_module("uvicorn"), *arguments, "--port", str(port)])

    def start_remotes(self, port: int, expired: str) -> Process:
        """Start the payment provider and the mail relay, with the faults of real ones; `expired`: whose card is."""
        self._environment |= {
            "STATEMENTS_REMOTES_URL": f"http://127.0.0.1:{port}",
            "STATEMENTS_FAKES_FOLDER": str(self.ledgers),
            "STATEMENTS_FAKES_THROTTLE_EVERY": str(self.plan.throttle_every),
            "STATEMENTS_FAKES_SILENT_EVERY": str(self.plan.silent_every),
            "STATEMENTS_FAKES_EXPIRED": expired,
        }
        arguments = ["--factory", "statements.fakes.server:from_environment", "--host", "127.0.0.1", "--no-access-log"]
        return self._spawn("remotes", [*_module("uvicorn"), *arguments, "--port", str(port)])

    def start_relay(self) -> Process:
        """Start a relay."""
        return self._spawn("relay", _outbox("relay"))

    def start_consumer(self) -> Process:
        """Start one more consumer."""
        number = 1 + sum(process.name.startswith("consumer") for process in self.processes)
        return self._spawn(f"consumer-{number}", _outbox("consume", "statements.handlers", "statements.billing"))

    def stop_processes(self) -> None:
        """Ask every process to end, and see that all do.

        Raises DemoError for one that does not end within the bound.
        """
        running = [process for process in self.processes if process.running]
        for process in running:
            process.expected_to_end = True
            process.signal(signal.SIGTERM)
        for process in running:
            try:
                process.popen.wait(self.plan.step_s)
            except subprocess.TimeoutExpired:
                raise DemoError(f"{process.name} did not end after SIGTERM") from None

    def failed(self) -> Process | None:
        """Return a process that has ended though nobody asked it to, if there is one."""
        for process in self.processes:
            if not process.running and not process.expected_to_end:
                return process
        return None

    def _run_to_end(self, name: str, argv: list[str]) -> None:
        process = self._spawn(name, argv)
        process.expected_to_end = True
        try:
            code = process.popen.wait(self.plan.start_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise DemoError(f"{name} took longer than {self.plan.start_s:g} s") from None
        if code:
            raise DemoError(f"{name} failed with exit status {code}: {tail(process.log)}")

    def _spawn(self, name: str, argv: list[str]) -> Process:
        log = self._instance.folder / f"{name}.log"
        popen = self._instance.spawn(argv, env=self._environment, log=log, ending=signal.SIGTERM)
        process = Process(name, popen, log)
        self.processes.append(process)
        return process


@contextmanager
def open_stage(plan: Plan, say: Say) -> Iterator[Stage]:
    """Find or start the servers, make a database of its own, and hand it over with the tables in it.

    Raises NoDatabase when there is no PostgreSQL to be had; without a broker the stage says so and has none.
    """
    prefix = f"outbox-demo-{secrets.token_hex(4)}"
    with ExitStack() as servers, ExitStack() as ours:
        with ThreadPoolExecutor(2) as pool:  # a broker takes seconds to start; the database need not wait
            broker = pool.submit(_find_broker, servers, prefix, say)
            server = usable(pool.submit(servers.enter_context, postgres(log=say)).result())
            name = f"outbox_demo_{os.getpid()}_{secrets.token_hex(3)}"
            url = server.create_database(name)
            ours.callback(_drop, server, name, say)
            instance = Instance("demo", None)
            ours.callback(instance.close)
            stage = Stage(plan, instance, url, prefix)
            stage.migrate()
            stage.use_broker(broker.result())
        yield stage


def _find_broker(servers: ExitStack, prefix: str, say: Say) -> RabbitMQ | None:
    try:
        broker = servers.enter_context(rabbitmq(log=say))
    except NoBroker as error:
        say(f"Without a broker: consumers take jobs straight from PostgreSQL. {error}")
        return None
    servers.callback(_tidy, broker, prefix, say)
    return broker


def _tidy(broker: RabbitMQ, prefix: str, say: Say) -> None:
    """Leave a found broker as it was; a private one goes as a whole."""
    if not broker.private:
        queue = broker_queue(prefix, RenderStatement.queue)
        if not delete_queue(broker.url, queue):
            say(f"queue {queue} is left behind at the broker")


def _drop(server: Postgres, name: str, say: Say) -> None:
    try:
        server.drop_database(name)
    except Exception as error:  # noqa: BLE001 - the end of a run must reach the servers' own end
        say(f"database {name} is left behind: {type(error).__name__}")


def _outbox(*arguments: str) -> list[str]:
    # Not the script beside the interpreter: it may be missing where the package runs from elsewhere.
    return [sys.executable, "-P", "-c", _OUTBOX, *arguments]


def _module(name: str) -> list[str]:
    return [sys.executable, "-P", "-m", name]


def _environment(plan: Plan, store: Path) -> dict[str, str]:
    # Settings that the user has for something else must not steer the demonstration.
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("OUTBOX_", "STATEMENTS_"))}
    return ours | {
        "OUTBOX_CONSUMER_CONCURRENCY": str(plan.concurrency),
        "OUTBOX_LOG_FORMAT": "json",
        "OUTBOX_CONSUMER_GRACE_S": "3",
        "OUTBOX_RELAY_GRACE_S": "3",
        "STATEMENTS_STORE": str(store),
        "STATEMENTS_LEASE_SECONDS": str(plan.lease_s),
        "STATEMENTS_RENDER_PAUSE": str(plan.render_pause_s),
        "PYTHONPATH": str(_EXAMPLES),
        "PYTHONUNBUFFERED": "1",
    }
