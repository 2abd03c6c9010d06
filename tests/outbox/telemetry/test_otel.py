"""OpenTelemetry as processes set it up: by the standard variables, with what is installed, and never in work's way."""

from __future__ import annotations

import http.server
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import MetricExportResult

from outbox.errors import SettingsError
from outbox.settings.telemetry import TelemetrySettings
from outbox.telemetry import otel
from outbox.telemetry.metrics_push import MetricsPush
from outbox.telemetry.otel import OpenTelemetry, open_telemetry
from outbox.telemetry.otel_environment import Asked, asked
from outbox.telemetry.series import Figures
from outbox.tracing.contract import CLAIM, Attr

HTTP = "otlp_proto_http"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Asked()),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, Asked()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, Asked(traces=(HTTP,))),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, Asked(traces=(HTTP,))),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, Asked(metrics=(HTTP,))),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, Asked()),
        ({"OTEL_METRICS_EXPORTER": " otlp , prometheus"}, Asked(metrics=(HTTP,))),
        ({"OTEL_TRACES_EXPORTER": "console,otlp,otlp"}, Asked(traces=("console", HTTP))),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            Asked(traces=("otlp_proto_grpc",)),
        ),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"}, Asked(is_disabled=True)),
        (
            {"OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500"},
            Asked(queued=10, batch=10, delay_s=0.1, push_every_s=0.5),
        ),
        (
            {"OTEL_BSP_SCHEDULE_DELAY": "soon"},
            Asked(problems=["OTEL_BSP_SCHEDULE_DELAY must be a number from 1 to 3.6e+06; 5000 is used"]),
        ),
    ],
)
def test_the_standard_variables_are_read(env: dict[str, str], expected: Asked) -> None:
    """Each means what OpenTelemetry says; what is nonsense is told, and the usual value used."""
    assert asked(env) == expected


def opened(env: dict[str, str], **settings: Any) -> OpenTelemetry | None:
    """Return what a consumer sets up."""
    return open_telemetry("consumer", TelemetrySettings(**settings), env)


def test_nothing_is_set_up_where_nothing_is_asked() -> None:
    """Or where all of it is switched off."""
    assert opened({}) is None
    assert opened({"OTEL_SDK_DISABLED": "true"}, spans_file="/nonexistent/spans") is None


def test_what_is_not_installed_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A variable of the cluster's is a warning, our own setting an error; an unknown exporter leaves the others."""
    found = opened({"OTEL_TRACES_EXPORTER": "zipkin,console"})
    assert found is not None
    assert found.tracing is not None
    assert [queue._name for queue in found._queues] == ["console"]
    monkeypatch.setattr(otel, "find_spec", lambda _: None)
    assert opened({"OTEL_TRACES_EXPORTER": "otlp"}) is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "an exporter is not installed; nothing goes there",
        "nothing is exported: OpenTelemetry's SDK is not installed",
    ]
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert all('pip install "outbox-relay[telemetry]"' in vars(record)["remedy"] for record in told[1:])
    with pytest.raises(SettingsError, match="spans_file needs OpenTelemetry's SDK; install it"):
        opened({}, spans_file=str(tmp_path / "spans"))


def test_a_variable_that_the_sdk_refuses_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK goes on with another value; what it says of that is handed on, without the value."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "unwanted-sampler")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "unwanted-header")
    assert opened({"OTEL_TRACES_EXPORTER": "otlp"}) is not None
    refused = [vars(one)["reason"] for one in caplog.records if "is refused" in one.getMessage()]
    assert any("sampler" in reason for reason in refused)
    assert any("Header" in reason for reason in refused)
    assert "unwanted" not in str(refused)


def test_an_exporter_with_wrong_settings_costs_the_process_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told by the error's class: its text may hold an address with a password."""

    class Broken:
        def load(self) -> Callable[[], None]:
            def fail() -> None:
                raise ValueError("unwanted-password")

            return fail

    monkeypatch.setattr(otel, "entry_points", lambda **_: [Broken()])
    others = {"OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=unwanted", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": " "}
    mine = {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "unwanted", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://unwanted"}
    found = opened({"OTEL_TRACES_EXPORTER": "otlp"} | others | mine)
    assert found is not None
    assert found.tracing is None
    [told] = [vars(one) for one in caplog.records if "can't be set up" in one.getMessage()]
    assert (told["signal"], told["reason"]) == ("traces", "ValueError")
    assert told["remedy"] == (
        "look at OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"
    )
    assert "unwanted" not in str(told)
    assert "unwanted" not in caplog.text


def test_a_file_that_cannot_be_written_is_an_error() -> None:
    """Its setting is named."""
    with pytest.raises(SettingsError, match=r"telemetry.spans_file /nonexistent/spans can't be written: No such file"):
        opened({}, spans_file="/nonexistent/spans")


class Collector(http.server.ThreadingHTTPServer):
    """A collector on loopback, which keeps what it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        self.got: list[tuple[str, str | None, bytes]] = []
        got = self.got
        self.answer = answer = [200]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got.append((self.path, self.headers["x-key"], body))
                self.send_response(answer[0])
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Yield a collector that the environment names."""
    with Collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{found.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=7")
        yield found
        found.shutdown()


def test_spans_and_figures_reach_a_collector_by_otlp(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the standard variables say, under the names of the table; counters, gauges and whole histograms."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing")
    found = open_telemetry("consumer", TelemetrySettings())
    assert found is not None
    assert found.tracing is not None
    found.start()
    span = found.tracing.open(CLAIM, "q", {Attr.QUEUE: "q", Attr.HINTS: 1, Attr.CLAIMED: 1})
    assert span is not None
    span.end()
    figures = Figures()
    figures.read("outbox.consumer.events", lambda: [(("claimed",), 3)])
    figures.read("outbox.consumer.leases", lambda: [((), 2)])
    figures.histogram("outbox.consumer.end.duration").observe(0.003)
    push = MetricsPush(figures.collect, found.metric_exporters, found.resource, 3600)
    push.start()
    found.close(5)
    push.close(5)
    assert found.spans() == {"exported": 1, "dropped": 0}
    bodies = {path: body for path, key, body in collector.got if key == "7"}
    (resource,) = ExportTraceServiceRequest.FromString(bodies["/v1/traces"]).resource_spans
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"] == "billing"
    assert [one.name for scope in resource.scope_spans for one in scope.spans] == ["claim q"]
    (told,) = ExportMetricsServiceRequest.FromString(bodies["/v1/metrics"]).resource_metrics
    metrics = {one.name: one for scope in told.scope_metrics for one in scope.metrics}
    events = metrics["outbox.consumer.events"]
    assert (events.unit, events.sum.is_monotonic, events.sum.data_points[0].as_double) == ("{event}", True, 3)
    assert {one.key: one.value.string_value for one in events.sum.data_points[0].attributes} == {"event": "claimed"}
    assert metrics["outbox.consumer.leases"].gauge.data_points[0].as_double == 2
    (buckets,) = metrics["outbox.consumer.end.duration"].histogram.data_points
    assert (buckets.count, buckets.sum) == (1, 0.003)
    assert sum(buckets.bucket_counts) == 1
    assert len(buckets.bucket_counts) == len(buckets.explicit_bounds) + 1


@pytest.mark.parametrize("is_there", [True, False])
def test_why_nothing_can_be_exported_is_told(
    is_there: bool, collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector's answer, or what the system says of the connection: and nothing of the address or the headers."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=unwanted-key")
    collector.answer[0] = 401
    if not is_there:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:unwanted-word@127.0.0.1:1/unwanted-path?k=unwanted-query"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    found = open_telemetry("consumer", TelemetrySettings())
    assert found is not None
    assert found.tracing is not None
    found.start()
    span = found.tracing.open(CLAIM, "q", {Attr.QUEUE: "q", Attr.HINTS: 1, Attr.CLAIMED: 1})
    assert span is not None
    span.end()
    push = MetricsPush(lambda: (), found.metric_exporters, found.resource, 3600)
    push.start()
    found.close(5)
    push.close(5)
    ours = [one for one in caplog.records if one.name.startswith("outbox")]
    reasons = {one.getMessage(): vars(one)["reason"] for one in ours if hasattr(one, "reason")}
    wanted = "it answers 401 Unauthorized" if is_there else "ConnectionError: Connection refused"
    assert reasons["spans could not be exported and are dropped"] == wanted
    assert reasons["figures could not be pushed"] == wanted
    assert "unwanted" not in str([vars(one) for one in ours])


def test_a_push_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the collecting raises, the next one comes; and each exporter is closed, whatever another one says."""
    pushed, tried, closed = threading.Event(), [], []

    class Sink:
        def export(self, _data: object, **_: object) -> MetricExportResult:
            pushed.set()
            return MetricExportResult.SUCCESS

        def shutdown(self) -> None:
            closed.append(self)
            raise RuntimeError("unwanted-shut")

    def collect() -> list[Any]:
        tried.append(1)
        if len(tried) == 1:
            raise RuntimeError("unwanted-collect")
        return []

    push = MetricsPush(collect, [Sink(), Sink()], None, 0.01)
    push.start()
    assert pushed.wait(10)
    push.close(5)
    assert len(closed) == 2
    assert [record.getMessage() for record in caplog.records] == ["figures could not be pushed"]
    assert "unwanted" not in caplog.text


def test_a_collector_that_is_away_delays_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it retries ends by the bound."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    found = open_telemetry("relay", TelemetrySettings())
    assert found is not None
    assert found.tracing is not None
    found.start()
    span = found.tracing.open(CLAIM, "q", {})
    assert span is not None
    span.end()
    began = time.monotonic()
    found.close(0.5)
    assert time.monotonic() - began < 2
    assert found.spans()["exported"] == 0
