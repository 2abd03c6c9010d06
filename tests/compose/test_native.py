"""What the compose file starts, started here: the same arguments and environment, other ports and servers."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from outbox.servers import databases
from support.composing import services
from support.dashboards import DASHBOARDS, queries
from support.native import START_S, Native, Stack, free_port, stack
from support.prometheus import HOME, find, program, rules
from support.promql import metric_of, selectors, series
from support.scraping import ask, health
from support.waiting import NotTrue, until

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]

# What has no value here: nothing is cancelled, no queue has a bound, no rate has been told that would drain one. And
# what is there only where a look meets a job that waits or runs: a matter of luck, and held by the gauges' own tests.
NOT_HERE = {
    "outbox.consumer.cancel.delay",
    *(
        f"outbox.queue.{name}"
        for name in ("fill", "drain", "lateness.mean", "lateness.most", "release.mean", "claim.mean")
    ),
    *(f"outbox.kind.{name}" for name in ("ready", "scheduled", "running")),
}


@pytest.fixture
def empty_database(postgres_server: str, prefix: str) -> Iterator[str]:
    """Yield the URL of an empty database."""
    name = prefix.replace("-", "_")
    databases.create(postgres_server, name)
    try:
        yield databases.url_of(databases.plain(postgres_server), name)
    finally:
        databases.drop(postgres_server, name)


@pytest.fixture
def services_here(empty_database: str, amqp_url: str, prefix: str, tmp_path: Path) -> Iterator[Stack]:
    """Yield what starts the services, on servers of this run."""
    there = services()["relay"]["environment"]
    changes = {
        there["OUTBOX_DATABASE_URL"]: empty_database,
        there["OUTBOX_AMQP_URL"]: amqp_url,
        "http://jaeger:4318": f"http://127.0.0.1:{free_port()}",  # a viewer that is away harms nothing
    }
    extra = {
        "": {"OUTBOX_AMQP_PREFIX": prefix},
        # So that something fails, and something is seen to run.
        "remotes": {"STATEMENTS_FAKES_EXPIRED": "acct_90,acct_91"},
        "consumer": {"STATEMENTS_RENDER_PAUSE": "1"},
    }
    with stack(tmp_path, changes, extra) as found:
        yield found


def _request(port: int, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = httpx.request("GET" if body is None else "POST", f"http://127.0.0.1:{port}{path}", json=body, timeout=10)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _ready(one: Native) -> bool:
    """Tell whether a process says that it is; fail for one that has ended."""
    assert one.process.poll() is None, one.said()
    try:
        return health(f"127.0.0.1:{one.ports[9464]}", "/ready")[0] == 200
    except OSError:
        return False


def _asked() -> Iterator[tuple[str, str]]:
    """Return every query of dashboards and rules with its name."""
    for path in DASHBOARDS:
        yield from queries(path)
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]


def _lacking(addresses: list[str], seen: set[str]) -> dict[str, str]:
    """Return which queries select what no process has shown yet; `seen` keeps all series that one has."""
    lines = [line for address in addresses for line in ask(address, "/metrics")[1].splitlines()]
    seen.update(line.rpartition(" ")[0] for line in lines if not line.startswith("#"))
    shown = [series(line) for line in seen]
    lacking = {}
    for title, query in _asked():
        for one in selectors(query):
            metric = metric_of(one.name)
            if metric is None or metric.name in NOT_HERE:
                continue
            if not any(one.name == name and one.meets(labels) for name, labels in shown):
                lacking[f"{title}: {one.name}"] = str(one.matchers)
    return lacking


@contextmanager
def _prometheus(addresses: list[str], folder: Path) -> Iterator[str | None]:
    """Yield the address of a Prometheus that reads the processes by the compose file's settings; None without one."""
    found = find("prometheus")
    if found is None:
        yield None
        return
    settings = yaml.safe_load((HOME / "prometheus.yml").read_text())
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(HOME / name) for name in settings["rule_files"]]
    halves = {"outbox-relay": addresses[:2], "outbox-consumer": addresses[2:]}
    settings["scrape_configs"] = [
        {"job_name": one["job_name"], "static_configs": [{"targets": halves[one["job_name"]]}]}
        for one in settings["scrape_configs"]
    ]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(settings))
    listen = f"127.0.0.1:{free_port()}"
    command = [
        found,
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={listen}",
    ]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as child:
        try:
            yield listen
        finally:
            child.kill()


def _result(prometheus: str, query: str, since: float) -> list[Any]:
    """Return what Prometheus answers for the time since then; nothing while it is not there yet."""
    span = {"query": query, "start": since, "end": time.time(), "step": 1}
    try:
        status, text = ask(prometheus, f"/api/v1/query_range?{urllib.parse.urlencode(span)}")
    except OSError:
        return []
    found: list[Any] = json.loads(text)["data"]["result"] if status == 200 else pytest.fail(f"{query}: {text}")
    return found


def _unanswered(prometheus: str, since: float) -> list[str]:
    """Return the queries of dashboards that Prometheus answers with nothing."""
    wanted = []
    for path in DASHBOARDS:
        for title, written in queries(path):
            query = written.replace(":1m]", ":1s]")  # full minutes pass too seldom
            named = {metric.name for one in selectors(query) if (metric := metric_of(one.name))}
            # A comparison shows what is beyond it, which may be nothing.
            if not named & NOT_HERE and ">" not in query and not _result(prometheus, query, since):
                wanted.append(f"{title}: {query}")
    return wanted


def test_the_services_do_a_job_and_their_dashboards_show_it(services_here: Stack, tmp_path: Path) -> None:
    """They become ready, carry a statement through, fail a charge, show what alerts and dashboards ask for, and end in
    the time that the compose file gives them.
    """
    for name in ("migrate", "tables"):
        services_here.run(name)
    processes = [services_here.start(name) for name in ("relay", "relay", "consumer")]
    addresses = [f"127.0.0.1:{one.ports[9464]}" for one in processes]
    faces = [services_here.start(name) for name in ("service", "remotes")]
    for one in processes:
        until(lambda one=one: _ready(one), within_s=START_S)
    for one in (*faces, processes[0], processes[2]):
        until(lambda one=one: services_here.healthy(one), within_s=START_S, every_s=0.3)

    port = faces[0].ports[8000]
    began, seen = time.time(), set[str]()
    wanted = itertools.cycle(itertools.product(range(91, 66, -1), ("2026-05", "2026-04", "2026-03"), (2, 1)))

    def lacking() -> dict[str, str]:
        # What runs is counted about once a second: so something has to run all the time.
        for number, period, version in itertools.islice(wanted, 2):
            body = {"account_id": f"acct_{number}", "period": period, "format_version": version}
            _request(port, "/statements", body)
        return _lacking(addresses, seen)

    with _prometheus(addresses, tmp_path) as prometheus:
        _none(lacking)
        until(lambda: _request(port, "/statements/acct_91/2026-05/2")["status"] == "available", within_s=START_S)
        if prometheus is not None:
            _none(lambda: _unanswered(prometheus, began))
            assert len(_result(prometheus, "up == 1", began)) == len(processes)
            # Expired cards fail for good, a few within a minute; nothing else is wrong.
            firing = {one["metric"]["alertname"] for one in _result(prometheus, 'ALERTS{alertstate="firing"}', began)}
            assert firing - {"OutboxDeadLetterRate"} == {"OutboxKindFails"}
    services_here.stop()
    if prometheus is None:
        program("prometheus")  # says that this part was left out


def _none(wrong: Callable[[], Any]) -> None:
    """Wait until nothing is wrong; else say what is."""
    found: list[Any] = []

    def nothing() -> bool:
        found[:] = [wrong()]
        return not found[0]

    try:
        until(nothing, within_s=START_S, every_s=0.5)
    except NotTrue:
        raise AssertionError(found[0]) from None
