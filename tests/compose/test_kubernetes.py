"""The manifests for Kubernetes: they fit its schemas, run with the least rights, and end in the time that they need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

from outbox.settings import load
from support.composing import COMPOSE, services
from support.prometheus import alerts
from support.promql import selectors

FOLDER = COMPOSE / "kubernetes"
# The first in which a sidecar is one without a feature gate, and the newest that the schemas know.
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def _resources() -> list[dict[str, Any]]:
    names = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    return [one for name in names for one in yaml.safe_load_all((FOLDER / name).read_text())]


def _pods() -> dict[str, dict[str, Any]]:
    found = [one for one in _resources() if one["kind"] in {"Deployment", "Job"}]
    return {one["metadata"]["name"]: one["spec"]["template"] for one in found}


def _containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod["spec"].get("initContainers", ())
    yield from pod["spec"]["containers"]


def _environment(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container["env"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_they_fit_the_schemas(version: str) -> None:
    """Strictly: a misspelt field would be left out without a word."""
    for resource in _resources():
        kubernetes_validate.validate(resource, version, strict=True)


def test_every_manifest_is_applied() -> None:
    """None lies beside the list."""
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.yaml") if path.stem != "kustomization")


@pytest.mark.parametrize("name", _pods())
def test_a_pod_has_the_least_rights(name: str) -> None:
    """Nobody's user, no token, no capability, a root file system that can't be written, bounds for what it takes."""
    pod = _pods()[name]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == name
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in _containers(pod | {"spec": pod}):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert not any(word in str(container["env"]) for word in ("postgresql://", "amqp://"))
    policies = [one for one in _resources() if one["kind"] == "NetworkPolicy"]
    selected = [one["spec"]["podSelector"]["matchLabels"] for one in policies]
    assert _pods()[name]["metadata"]["labels"] in selected


@pytest.mark.parametrize("name", ["statements", "statements-consumer"])
def test_a_pod_is_looked_after_and_has_the_time_that_its_settings_promise(name: str) -> None:
    """Its probes ask ports and paths that there are; its end is longer than those of its processes together."""
    pod = _pods()[name]
    took_s = 0.0
    for container in _containers(pod):
        ports = {port["name"] for port in container["ports"]}
        assert {"startupProbe", "livenessProbe"} <= container.keys()
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind, {})
            asked = probe.get("httpGet") or probe.get("tcpSocket") or {"port": next(iter(ports))}
            assert asked["port"] in ports
            assert asked.get("path", "/live") in {"/live", "/ready", "/health"}
        # An end that waits for a server would make restarts of what only waits.
        assert container["livenessProbe"].get("httpGet", {}).get("path", "/live") == "/live"
        took_s += _end_s(container)
    assert pod["spec"]["terminationGracePeriodSeconds"] >= took_s + 5


def _end_s(container: dict[str, Any]) -> float:
    command = container["command"]
    if command[0] == "uvicorn":
        return float(command[command.index("--timeout-graceful-shutdown") + 1])
    environment = {key: value for key, value in _environment(container).items() if key.startswith("OUTBOX_")}
    del environment["OUTBOX_CONFIG"]
    settings = load(env=environment)
    assert settings.telemetry.listen == "0.0.0.0:9464"
    return settings.relay.grace_s if command[1] == "relay" else settings.consumer.grace_s


def test_the_relay_is_a_sidecar_that_takes_no_service_out() -> None:
    """It starts before the service, ends after it, and its readiness doesn't count."""
    [relay] = _pods()["statements"]["spec"]["initContainers"]
    assert relay["restartPolicy"] == "Always"
    assert "readinessProbe" not in relay


def test_they_start_what_the_compose_file_starts() -> None:
    """The same commands, which are started natively by a test."""
    there = {tuple(service["command"]) for service in services().values() if "build" in service}
    here = {tuple(container["command"]) for pod in _pods().values() for container in _containers(pod)}
    assert here <= there


def test_prometheus_is_told_what_the_manifests_and_the_alerts_say() -> None:
    """The port that it keeps is that of the containers, and a job's name is one that the alert on targets takes."""
    [job] = yaml.safe_load((COMPOSE / "prometheus" / "kubernetes.yml").read_text())["scrape_configs"]
    kept, named, *_ = job["relabel_configs"]
    shown = [
        one for pod in _pods().values() for one in _containers(pod) if "OUTBOX_TELEMETRY_LISTEN" in _environment(one)
    ]
    assert {port["name"] for one in shown for port in one["ports"]} == {kept["regex"]}
    names = {named["replacement"].replace("$1", one["name"]) for one in shown}
    assert names == {"outbox-relay", "outbox-consumer"}
    [asked] = selectors(alerts()["OutboxTargetDown"]["expr"])
    assert all(asked.meets({"job": name}) for name in names)
