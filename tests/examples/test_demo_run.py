"""The demonstration as a whole, smaller than `outbox demo` but with every fault, in a process of its own."""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import psycopg
import pytest
from pika.exceptions import ChannelClosedByBroker

from outbox.amqp.parameters import connection_parameters
from outbox.settings.urls import amqp_parameters
from outbox_schemas.topology import broker_queue
from statements.payloads import RenderStatement

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = """
import json, sys
from sqlalchemy import text
from statements.demo import faults
from statements.demo.plan import Plan
from statements.demo.run import run

# A consumer is stopped with an attempt that has begun: one claimed a moment before would write nothing late.
BEGUN = "SELECT count(*) FROM outbox.jobs WHERE id = ANY (:held) AND lease_started_at < :before"
settled = faults._settled

def begun(show, victim):
    with show.observer._engine.connect() as connection:
        before = connection.scalar(text("SELECT clock_timestamp() - interval '100 milliseconds'"))
    held = settled(show, victim)
    with show.observer._engine.connect() as connection:
        return held if connection.scalar(text(BEGUN), {"held": list(held), "before": before}) else frozenset()

faults._settled = begun
verdict = run(quiet=True, plan=Plan(statements=90, per_second=15, lease_s=2))
print(json.dumps(verdict.as_json()))
sys.exit(0 if verdict.ok else 1)
"""
NO_BROKER = """
from outbox.servers import NoBroker
from statements.demo import stage

def nothing(**_):
    raise NoBroker("No RabbitMQ is to be had.")

stage.rabbitmq = nothing
"""


def _start(program: str = PROGRAM, **environment: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**kept, **environment, "PYTHONPATH": str(EXAMPLES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _result(demo: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    with demo:
        output, events = demo.communicate(timeout=450)
    assert demo.returncode == 0, events
    return json.loads(output), events


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_everything_breaks_and_nothing_is_lost() -> None:
    """With a consumer killed, one frozen past its lease and the broker restarted, all promises hold."""
    result, events = _result(_start())
    assert (result["submitted"], result["statements"]) == (180, 90), events
    assert (result["jobs"], result["artifacts"], result["lost"], result["duplicated"]) == (270, 90, 0, 0), events
    assert (result["charges"], result["mails"] - result["mails_sent_again"]) == (90, 90), events
    assert result["charges_reconciled"] >= 1, events
    assert result["dead_letters_redriven"] >= 1, events
    assert result["leases_recovered"] >= 2, events
    assert result["stale_writes_refused"] >= 1, events
    assert "the broker is back" in events


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_without_a_broker(postgres_server: str) -> None:
    """Where no broker is to be had, the demonstration says so in one line and keeps every promise."""
    result, events = _result(_start(NO_BROKER + PROGRAM, OUTBOX_DATABASE_URL=postgres_server))
    assert [line for line in events.splitlines() if "Without a broker" in line] != []
    assert (result["jobs"], result["lost"], result["duplicated"]) == (270, 0, 0), events


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_found_broker_is_not_stopped_and_keeps_nothing(postgres_server: str, rabbitmq_server: str) -> None:
    """With servers that were only found, the result says which fault was left out, and no queue is left behind."""
    token = secrets.token_hex(4)
    program = f"from statements.demo import stage\nstage.secrets.token_hex = lambda _: {token!r}\n{PROGRAM}"
    result, events = _result(_start(program, OUTBOX_DATABASE_URL=postgres_server, OUTBOX_AMQP_URL=rabbitmq_server))
    assert (result["lost"], result["duplicated"]) == (0, 0), events
    assert result["skipped"] == ["the broker's restart, because the broker was not started here"]
    queue = broker_queue(f"outbox-demo-{token}", RenderStatement.queue)
    assert not _is_there(rabbitmq_server, queue)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_nothing(postgres_server: str, rabbitmq_server: str, number: int) -> None:
    """Ctrl-C or SIGTERM ends every process and drops the database; the servers that were found go on."""
    with _start(OUTBOX_DATABASE_URL=postgres_server, OUTBOX_AMQP_URL=rabbitmq_server) as demo:
        assert demo.stderr is not None
        lines = iter(demo.stderr.readline, "")
        assert any("asking for" in line for line in lines)
        children = _descendants(demo.pid)
        assert len(children) >= 4
        demo.send_signal(number)
        demo.communicate(timeout=60)
        assert demo.returncode not in {0, 1}
    assert children.isdisjoint(_running())
    with psycopg.connect(postgres_server) as connection:
        left = connection.execute("SELECT 1 FROM pg_database WHERE datname LIKE %s", [f"outbox_demo_{demo.pid}_%"])
        assert left.fetchall() == []


def _is_there(amqp_url: str, queue: str) -> bool:
    connection = pika.BlockingConnection(connection_parameters(amqp_parameters(amqp_url), name="test"))
    try:
        connection.channel().queue_declare(queue, passive=True)
    except ChannelClosedByBroker:
        return False
    finally:
        connection.close()
    return True


def _running() -> dict[int, int]:
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    return {int(child): int(parent) for child, parent in map(str.split, listing.stdout.splitlines())}


def _descendants(pid: int) -> set[int]:
    parents = _running()
    return {child for child, parent in parents.items() if parent == pid}
