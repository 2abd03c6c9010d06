"""`python -m outbox.servers`: servers to play with, until Ctrl-C."""

import argparse
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from outbox.servers.errors import NoBroker, NoServer
from outbox.servers.handles import Postgres, RabbitMQ
from outbox.servers.start import BROKER_VARIABLE, DATABASE_VARIABLE, postgres, rabbitmq

_done = threading.Event()


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="python -m outbox.servers",
        description="Find or start a PostgreSQL and a RabbitMQ, print their addresses as lines for a shell, "
        "and hold the servers until Ctrl-C or SIGTERM, which ends what was started here.",
        epilog=f"A server that {DATABASE_VARIABLE} or {BROKER_VARIABLE} names is used and left alone. "
        "Exit status: 0 after the signal, 1 if no PostgreSQL is to be had, 2 for wrong usage.",
    )


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _database(stack: ExitStack) -> Postgres:
    return stack.enter_context(postgres(log=_say))


def _broker(stack: ExitStack) -> RabbitMQ | None:
    try:
        return stack.enter_context(rabbitmq(log=_say))
    except NoBroker as error:
        _say(str(error))
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the two lines for a shell to evaluate, on standard output, and hold the servers till a signal.

    `arguments` are those of the command line by default. Exit status 0 after Ctrl-C or SIGTERM; 1 if there is no
    database. Without a broker it goes on and says so. Raises SystemExit: 0 for `--help`, 2 for any other argument.
    """
    _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: _done.set())
    # The stacks are apart because each is entered on a thread of its own.
    with ExitStack() as first, ExitStack() as second:
        with ThreadPoolExecutor(2) as pool:
            starting_database, starting_broker = pool.submit(_database, first), pool.submit(_broker, second)
        try:
            database = starting_database.result()
        except NoServer as error:
            _say(str(error))
            return 1
        broker = starting_broker.result()
        # Here passwords are the point: these lines are the only way to them.
        lines = [f"export {DATABASE_VARIABLE}={shlex.quote(database.url)}"]
        if broker is not None:
            lines.append(f"export {BROKER_VARIABLE}={shlex.quote(broker.url)}")
        print("\n".join(lines), flush=True)
        _say("Ctrl-C ends what was started.")
        _done.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
