"""One of several writers: `python -m measure.writer NUMBER`, told on its input for how many seconds to write."""

from __future__ import annotations

import sys
from itertools import count
from os import environ
from pathlib import Path

from contenders.ours import Outbox

from measure.contender import Servers
from measure.submitting import rate_of


def main() -> None:
    """Say "ready"; for each line of seconds write for so long and say the rate."""
    number = int(sys.argv[1])
    servers = Servers(environ["BENCH_DATABASE_URL"], environ["BENCH_AMQP_URL"], environ["BENCH_PREFIX"], Path())
    numbers = count(number * 100_000_000)
    with Outbox(servers).submitter() as writer:
        for _ in range(30):
            writer.one(next(numbers))
        print("ready", flush=True)
        for line in sys.stdin:
            print("rate", rate_of(lambda: writer.one(next(numbers)), float(line)), flush=True)


if __name__ == "__main__":
    main()
