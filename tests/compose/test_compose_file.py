"""The compose file: what runs there has few rights, is looked after, and is given the time that it needs to end."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest

from outbox.settings import load
from support.composing import COMPOSE, ours, seconds, services

PROCESSES = {"relay": "relay", "consumer": "consumer"}


def test_all_that_a_deployment_has_is_there() -> None:
    """Two relays and consumers beside both servers, the service with its remote side, and what watches them."""
    found = services()
    assert found.keys() == {
        *("postgres", "rabbitmq", "migrate", "tables", "relay", "consumer", "service", "remotes"),
        *("prometheus", "grafana", "jaeger"),
    }
    assert found["relay"]["deploy"]["replicas"] == found["consumer"]["deploy"]["replicas"] == 2
    assert all(name in services() for service in found.values() for name in service.get("depends_on", ()))


@pytest.mark.parametrize("name", services())
def test_a_service_is_reached_from_this_machine_alone_and_pinned(name: str) -> None:
    """Ports on the loopback interface, an image by its version, an end in its own time."""
    service = services()[name]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    tag = service["image"].partition(":")[2]
    assert tag
    assert tag != "latest"
    assert not service.get("privileged")
    assert "docker.sock" not in str(service.get("volumes"))


@pytest.mark.parametrize("name", ours())
def test_a_process_of_ours_can_do_no_harm(name: str) -> None:
    """No root, no rights, nothing to write to but `/tmp` and its own volumes."""
    service = ours()[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"]


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_given_the_time_that_its_settings_promise(name: str) -> None:
    """Its stop time is above its own, and its settings are read as they stand there."""
    service = services()[name]
    environment = {key: value for key, value in service["environment"].items() if key.startswith("OUTBOX_")}
    grace_s = getattr(load(env=environment), PROCESSES[name]).grace_s
    assert seconds(service["stop_grace_period"]) >= grace_s + 5
    assert environment["OUTBOX_TELEMETRY_LISTEN"] == "0.0.0.0:9464"


def test_passwords_come_from_outside() -> None:
    """Each is a variable; what stands there is a development default, and says so."""
    text = (COMPOSE / "compose.yaml").read_text()
    given = re.findall(r"(?:PASS(?:WORD)?: |//outbox:)(\S+?)(?:@|\n)", text)
    code = [one for one in given if not one.startswith("outbox-dev")]
    assert len(code) == 5
    assert all(re.fullmatch(r"\$\{OUTBOX_[A-Z]+_PASSWORD:-outbox-dev\}", one) for one in code)


def test_compose_takes_the_file() -> None:
    """Docker's own reading of it, which needs no engine."""
    command = _compose()
    told = subprocess.run(
        [*command, "-f", COMPOSE / "compose.yaml", "config", "-q"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr


def _compose() -> list[Any]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        told = subprocess.run([*command, "version"], capture_output=True, text=True, check=False)
        if told.returncode == 0:
            return command
    pytest.skip("there is no Docker Compose here, neither as a plugin nor as docker-compose")
