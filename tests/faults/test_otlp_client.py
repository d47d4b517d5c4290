"""The OTLP client against a collector that misbehaves: what is sent again, what is lost, and what is said about it."""

from __future__ import annotations

import logging
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import otel_rl
from otel_rl.export import Ended, Event, Item, Refused, Row, RunInfo
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.agent_start import read_status
from otel_rl.recorder.errors import SettingsError
from otel_rl_exporters.otlp import OtlpLogs
from tests.collector import free_port, wait_for
from tests.delivering import Agents
from tests.faults.misbehaving import Misbehaving, Say, certificates, collector
from tests.faults.otlp_matrix import CASES, PAGE, PROTOCOLS, ROWS, Case, row
from tests.real_parts import needs_program

both = pytest.mark.parametrize("protocol", PROTOCOLS)
EVENTS: list[Item] = [*(Row(n, n + 1, {"loss": n / 7}) for n in range(ROWS)), Ended(ROWS, 0, "finished")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a stranger, and certificates of the authority."""
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def send(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ExporterThread]:
    """A function that sends the events of a run to a collector, and returns its exporter."""

    def start(behavior: Misbehaving, protocol: str = "http/protobuf") -> ExporterThread:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        thread = agents.start("otlp_logs", EVENTS)
        wait_for(lambda: thread.has_everything, f"not settled: {thread.last_error}")
        return thread

    return start


@needs_program("openssl")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@both
def test_a_collector_that_misbehaves(
    agents: Agents,
    files: Path,
    case: Case,
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Requests, rows and messages are those of the page; no request comes before the pause has ended."""
    with caplog.at_level(logging.WARNING), case.collector(protocol, files) as behavior:
        for name, value in case.environment(behavior, protocol, files).items():
            monkeypatch.setenv(name, value)
        thread = agents.start("otlp_logs", EVENTS)
        wait_for(lambda: thread.has_everything or (case.tls and thread.failures), f"not settled: {thread.last_error}")
        is_complete = thread.has_everything and not thread.refused
        messages = "\n".join(caplog.messages)
        found = row(case, protocol, behavior, is_complete, messages)

    of_tls = case.tls and thread.failures  # its words depend on who closes the connection first
    assert (found.rpartition(" | ")[0] if of_tls else found) in PAGE.read_text()
    assert not of_tls or case.mutual or "certificate" in messages
    assert [one.message for one in case.answers if one.status == 200 and one.message not in messages] == []
    assert behavior.taken[:ROWS] == sorted(behavior.taken[:ROWS])
    assert all("OTel-OTLP-Exporter-Python" in request.headers["user-agent"] for request in behavior.requests)
    wait = case.answers[0].wait if case.answers else None
    if wait is not None:  # a date has whole seconds
        assert behavior.requests[1].at - behavior.requests[0].at >= wait - case.answers[0].as_date


def test_nobody_listens(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the address and what the socket said, but not the password."""
    port = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:secret@127.0.0.1:{port}")
    for protocol in PROTOCOLS:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        thread = agents.start("otlp_logs", EVENTS)
        wait_for(lambda thread=thread: thread.failures, "it did not fail")  # type: ignore[misc]

        assert "refused" in thread.last_error
        assert f"127.0.0.1:{port}" in thread.last_error
        assert "secret" not in thread.last_error


@both
def test_a_timeout_is_named(agents: Agents, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is given up and sent again, and the message has the variable and its value."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    with collector(protocol, Say(slow=2)) as behavior:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        thread = agents.start("otlp_logs", EVENTS)
        wait_for(lambda: len(behavior.requests) >= 2, "not sent again")
        assert "OTEL_EXPORTER_OTLP_TIMEOUT" in thread.last_error
        assert "0.3 s" in thread.last_error


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_port_of_the_other_protocol_is_named(agents: Agents, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the variable with its right value, and the events are kept."""
    right = "http/protobuf" if protocol == "grpc" else "grpc"
    with collector(right, Say()) as behavior:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        thread = agents.start("otlp_logs", EVENTS)
        wait_for(lambda: thread.failures, "it did not fail")

    assert f"set OTEL_EXPORTER_OTLP_PROTOCOL={right}," in thread.last_error
    assert thread.last_error.isprintable()
    assert not thread.refused


@pytest.mark.parametrize(
    ("protocol", "answer", "refused", "said"),
    [
        ("http/protobuf", Say(400, "field 7 is odd", json=True), 10, "/v1/logs: 400 Bad Request: field 7 is odd"),
        ("http/json", Say(json=True, rejected=1, message="no"), 1, "rejected 1: no"),
        ("http/protobuf", Say(308, location="https://elsewhere/v1/logs"), 10, "https://elsewhere/v1/logs"),
        ("http/protobuf", Say(page=True), 10, "check the endpoint"),
    ],
    ids=["a status in JSON", "JSON both ways", "a redirection, which is not followed", "a web page"],
)
def test_other_answers_over_http(
    send: Callable[..., ExporterThread], protocol: str, answer: Say, refused: int, said: str
) -> None:
    """Refused events are counted, and the message has the server's words, or the way out."""
    with collector(protocol, answer) as behavior:
        thread = send(behavior, protocol)

    assert behavior.requests[0].steps == list(range(ROWS))
    assert thread.refused == refused
    assert said in thread.last_error


@both
def test_a_record_that_cannot_be_encoded_costs_itself_alone(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three events is of a time that OTLP cannot hold: the other two arrive."""
    events = [Event("a", -1 if n == 1 else 1, {}, step=n) for n in range(3)]
    with collector(protocol) as behavior:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        exporter = OtlpLogs(RunInfo("i", "p", "n", str(tmp_path)))
        with pytest.raises(Refused, match="cannot be encoded") as raised:
            exporter.export(events)
        exporter.export(events[raised.value.done :])
        exporter.shutdown()

    assert behavior.taken == [0, 2]
    assert (raised.value.done, raised.value.count) == (2, 1)


@pytest.mark.parametrize("excluded", [False, True])
def test_a_proxy_is_used_as_the_usual_variables_say(
    excluded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`HTTP_PROXY` gets the request, unless `NO_PROXY` names the host."""
    with collector("http/protobuf") as behavior, collector("http/protobuf") as proxy:
        monkeypatch.setenv("http_proxy", proxy.endpoint)
        monkeypatch.setenv("no_proxy", "127.0.0.1" if excluded else "elsewhere")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        exporter = OtlpLogs(RunInfo("i", "p", "n", str(tmp_path)))
        exporter.export([Row(1, 1, {"loss": 1.0})])
        exporter.shutdown()

    assert behavior.taken == ([1] if excluded else [])
    assert list(proxy.others) == ([] if excluded else ["LOGS"])


@both
def test_finish_says_what_a_collector_rejected(protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of nine rejected: `finish` is False, and log, status and metrics have the reason."""
    with collector(protocol, Say(message="too old", rejected=2)) as behavior:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        run = otel_rl.init(dir=tmp_path, exporters=[], quiet=True, hardware=False)
        for n in range(ROWS):
            run.log({"loss": float(n)}, step=n)
        wait_for(lambda: read_status(directories.at(run.dir)).lost, "the loss is not reported")
        page = urllib.request.urlopen(str(run.prometheus)).read().decode()

        assert not run.finish(20)
    status = read_status(directories.at(run.dir))
    assert status.lost == {"refused_by_exporter": 2}
    assert "rejected 2: too old" in status.last_error["otlp_logs"]
    assert "rejected 2: too old" in (run.dir / "agent.log").read_text()
    assert re.search(r'rl_telemetry_failures_total{.*error_type="partial_success".*} 1.0', page)


@pytest.mark.slow
def test_metrics_that_are_refused_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector without metrics answers 404: the agent's status and log say so, with the way out."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    with collector("http/protobuf") as behavior:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", behavior.endpoint + "/v1/nowhere")
        run = otel_rl.init(dir=tmp_path, exporters=[], quiet=True, hardware=False)
        run.log({"loss": 1.0}, step=0)
        wait_for(lambda: "otlp_metrics" in read_status(directories.at(run.dir)).last_error, "nothing is reported")
        status = read_status(directories.at(run.dir))
        run.finish(20)

    assert "404" in status.last_error["otlp_metrics"]
    assert "OTEL_METRICS_EXPORTER=none" in (run.dir / "agent.log").read_text()


@pytest.mark.parametrize(
    ("name", "value", "protocol", "text"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "http/protobuf", "expected a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "http/protobuf", "expected a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://host:port", "http/protobuf", "expected a URL"),
        ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "ftp://host", "http/protobuf", "expected a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1", "grpc", "expected a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://host/path", "grpc", "expected a URL"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/does/not/exist.pem", "grpc", "No such file"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/does/not/exist.pem", "http/protobuf", "No such file"),
        ("OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE", "/does/not/exist.pem", "http/protobuf", "No such file"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/does/not/exist.pem", "http/protobuf", "set both"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", __file__, "http/protobuf", "PEM"),
    ],
)
def test_what_is_wrong_from_the_start_is_told_there(
    name: str, value: str, protocol: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`init` names the variable, its value and what it expected."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://127.0.0.1:4318/v1/logs")
    if name == "OTEL_EXPORTER_OTLP_ENDPOINT":
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        otel_rl.init(dir=tmp_path, exporters=[], agent="off", quiet=True)

    assert name in str(raised.value)
    assert repr(value) in str(raised.value) or text == "set both"
    assert text in str(raised.value)


def test_the_pause_of_a_date_is_that_until_it() -> None:
    """A date in the past and an invalid date cause no pause."""
    from otel_rl_exporters.otlp_transport import _retry_after

    now = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, 0)) - time.timezone

    assert _retry_after("Sun, 22 Nov 2026 12:00:30 GMT", now) == 30
    assert _retry_after("Sun, 22 Nov 2026 11:00:30 GMT", now) == 0
    assert _retry_after("soon", now) is None
    assert _retry_after(" 7 ", now) == 7
