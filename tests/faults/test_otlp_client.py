"""The OTLP client against a collector that misbehaves: what is sent again, what is lost, and what is said about it."""

from __future__ import annotations

import logging
import re
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.errors import SettingsError
from otel_rl.export import Event, Refused, Row, RunInfo
from otel_rl.setup import directory as directories
from otel_rl.setup.agent_start import read_status
from otel_rl_exporters.otlp import OtlpLogs
from tests.collector import free_port, wait_for
from tests.faults.misbehaving import Say, certificates, collector
from tests.real_parts import needs_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.misbehaving import Misbehaving

ROWS = 9
both = pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
Send = "Callable[[Misbehaving, str], Exporter]"


@pytest.fixture
def send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Send]:
    """A function that sends nine rows to a collector, and returns its exporter."""
    started: list[tuple[ExporterThread, Outbox]] = []

    def start(behavior: Misbehaving | str, protocol: str) -> ExporterThread:
        endpoint = behavior if isinstance(behavior, str) else behavior.endpoint
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        for place in ("outbox", "cursors"):
            (tmp_path / place).mkdir()
        outbox = Outbox(tmp_path / "outbox", 1 << 20)
        outbox.append([Row(n, n + 1, {"loss": n / 7}) for n in range(ROWS)], b"\xc0")
        run = RunInfo("i", "p", "n", str(tmp_path))
        thread = ExporterThread("otlp_logs", OtlpLogs, {}, run, outbox, tmp_path / "cursors")
        started.append((thread, outbox))
        thread.start()
        return thread

    yield start
    for thread, outbox in started:
        thread.stop()
        thread.join(15)
        outbox.close()


def wait_until_settled(thread: ExporterThread) -> None:
    wait_for(lambda: thread.has_everything, f"not settled: {thread.last_error}")


@both
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_collector_gets_the_batch_again(send: Send, protocol: str, status: int) -> None:
    """Retryable answers: the same rows once more, nothing refused, nothing doubled; the log has the reason."""
    with collector(protocol, Say(status, "the queue is full", wait=0.01)) as behavior:
        thread = send(behavior, protocol)
        wait_until_settled(thread)

    assert behavior.taken == list(range(ROWS))
    assert len(behavior.requests) == 2
    assert (thread.failures, thread.refused) == (1, 0)
    assert "the queue is full" in thread.last_error


@both
@pytest.mark.parametrize("status", [400, 404, 500])
def test_what_the_collector_never_takes_ends_the_batch(
    send: Send, protocol: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Final answers: one request, counted, and the reason is logged with the address."""
    with caplog.at_level(logging.WARNING), collector(protocol, Say(status, "field 7 is odd")) as behavior:
        thread = send(behavior, protocol)
        wait_until_settled(thread)

    assert len(behavior.requests) == 1
    assert (thread.taken, thread.refused, thread.failures) == (0, ROWS, 0)
    text = caplog.messages[0]
    assert "field 7 is odd" in text
    assert behavior.endpoint.removeprefix("http://") in text
    assert ("404" in text or "UNIMPLEMENTED" in text) == (status == 404)


def test_exhausted_without_a_pause_is_final(send: Send) -> None:
    """GRPC's RESOURCE_EXHAUSTED without RetryInfo: one request."""
    with collector("grpc", Say(429, "quota used up")) as behavior:
        thread = send(behavior, "grpc")
        wait_until_settled(thread)

    assert len(behavior.requests) == 1
    assert thread.refused == ROWS
    assert thread.causes == {"RESOURCE_EXHAUSTED": 1}


@both
@pytest.mark.parametrize("as_date", [False, True])
@pytest.mark.parametrize("status", [429, 503])
def test_the_pause_that_the_collector_asks_for_is_kept(send: Send, protocol: str, status: int, as_date: bool) -> None:
    """Seconds, a date, RetryInfo: the next request comes no sooner."""
    wait = 2.2 if as_date and protocol != "grpc" else 1  # a date has whole seconds
    with collector(protocol, Say(status, wait=wait, as_date=as_date)) as behavior:
        wait_until_settled(send(behavior, protocol))

    first, second = behavior.requests
    assert second.at - first.at >= 1
    assert behavior.taken == list(range(ROWS))


@both
def test_a_batch_that_is_too_large_is_split(send: Send, protocol: str) -> None:
    """A collector that takes two records at a time has all nine, once and in order."""
    with collector(protocol, most=2) as behavior:
        thread = send(behavior, protocol)
        wait_until_settled(thread)

    assert behavior.taken == list(range(ROWS))
    assert (thread.refused, thread.failures) == (0, 0)


@both
def test_a_record_that_is_too_large_alone_is_refused(send: Send, protocol: str) -> None:
    """A collector that takes no record at all: each is refused, and nothing waits."""
    with collector(protocol, most=0) as behavior:
        thread = send(behavior, protocol)
        wait_until_settled(thread)

    assert thread.refused == ROWS
    assert sum(len(request.steps) == 1 for request in behavior.requests) == ROWS


@both
def test_parts_of_a_batch_that_were_taken_are_not_sent_again(send: Send, protocol: str) -> None:
    """The second part of a split batch meets a busy collector: the first one is not repeated."""
    answers = [Say(413, "larger than max"), Say(), Say(503)]
    with collector(protocol, *answers) as behavior:
        wait_until_settled(send(behavior, protocol))

    assert behavior.taken == list(range(ROWS))


@both
def test_a_slow_collector_is_waited_for(send: Send, protocol: str) -> None:
    """It answers after 3.5 s, and the default is 10 s: one request."""
    with collector(protocol, Say(slow=3.5)) as behavior:
        wait_until_settled(send(behavior, protocol))

    assert len(behavior.requests) == 1


@both
@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT"])
def test_the_timeout_is_the_variable(send: Send, protocol: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 ms: the request is given up then, and the message names the variable."""
    monkeypatch.setenv(name, "300")
    with collector(protocol, Say(slow=2)) as behavior:
        thread = send(behavior, protocol)
        wait_for(lambda: len(behavior.requests) >= 2, "not sent again")
        assert "OTEL_EXPORTER_OTLP_TIMEOUT" in thread.last_error
        assert "0.3 s" in thread.last_error


@both
def test_partial_success_is_read(send: Send, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """Four of nine rejected: counted, and logged in the collector's words; nothing is sent again."""
    with caplog.at_level(logging.WARNING), collector(protocol, Say(message="too old", rejected=4)) as behavior:
        thread = send(behavior, protocol)
        wait_until_settled(thread)

    assert len(behavior.requests) == 1
    assert (thread.taken, thread.refused) == (5, 4)
    assert "rejected 4: too old" in caplog.messages[0]


@both
def test_advice_of_a_collector_is_logged(send: Send, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing rejected, but a message: it is in the log."""
    with caplog.at_level(logging.WARNING), collector(protocol, Say(message="use gzip")) as behavior:
        thread = send(behavior, protocol)
        wait_until_settled(thread)

    assert (thread.taken, thread.refused) == (ROWS, 0)
    assert any("use gzip" in text for text in caplog.messages)


@both
def test_a_connection_that_is_cut_is_made_again(send: Send, protocol: str) -> None:
    """It reads the request and closes: the same rows are sent once more."""
    with collector(protocol, Say(cut=True)) as behavior:
        thread = send(behavior, protocol)
        wait_until_settled(thread)

    assert behavior.taken == list(range(ROWS))
    assert len(behavior.requests) == 2
    assert "closed" in thread.last_error


@both
def test_rows_whose_answer_is_lost_come_again(send: Send, protocol: str) -> None:
    """It takes the request and closes: the same rows in the same order, with the identity by which they are known."""
    with collector(protocol, Say(cut=True, keeps=True)) as behavior:
        wait_until_settled(send(behavior, protocol))

    assert behavior.taken == [*range(ROWS), *range(ROWS)]


@both
def test_nobody_listens(send: Send, protocol: str) -> None:
    """The message has the address and what the socket said."""
    port = free_port()
    thread = send(f"http://user:secret@127.0.0.1:{port}", protocol)
    wait_for(lambda: thread.failures, "it did not fail")

    assert "refused" in thread.last_error
    assert f"127.0.0.1:{port}" in thread.last_error
    assert "secret" not in thread.last_error


def test_a_status_in_json_is_read(send: Send) -> None:
    """An answer in JSON: its message is in the log, not its braces."""
    with collector("http/protobuf", Say(400, "field 7 is odd", json=True)) as behavior:
        thread = send(behavior, "http/protobuf")
        wait_until_settled(thread)

    assert thread.last_error.endswith("/v1/logs: 400 Bad Request: field 7 is odd")


def test_json_is_sent_where_it_is_asked_for(send: Send) -> None:
    """`http/json`: the rows arrive, and so does what is said of them."""
    with collector("http/json", Say(json=True, rejected=1, message="no")) as behavior:
        thread = send(behavior, "http/json")
        wait_until_settled(thread)

    assert behavior.requests[0].steps == list(range(ROWS))
    assert thread.refused == 1


def test_a_redirection_is_not_followed_but_told(send: Send) -> None:
    """Headers with secrets go nowhere else; the message says where the endpoint is."""
    with collector("http/protobuf", Say(308, location="https://elsewhere/v1/logs")) as behavior:
        thread = send(behavior, "http/protobuf")
        wait_until_settled(thread)

    assert "https://elsewhere/v1/logs" in thread.last_error
    assert thread.refused == ROWS


def test_a_web_page_is_no_answer(send: Send) -> None:
    """200 with HTML, as another server's start page: the records are counted as refused, with the way out."""
    with collector("http/protobuf", Say(page=True)) as behavior:
        thread = send(behavior, "http/protobuf")
        wait_until_settled(thread)

    assert thread.refused == ROWS
    assert "check the endpoint" in thread.last_error


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
def test_headers_and_compression_arrive(send: Send, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are percent-decoded; gzip is used, in capitals too."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%2Cb, x-scope=team")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP")
    with collector(protocol) as behavior:
        wait_until_settled(send(behavior, protocol))

    headers = behavior.requests[0].headers
    assert (headers["api-key"], headers["x-scope"]) == ("a,b", "team")
    assert protocol == "grpc" or headers["content-encoding"] == "gzip"
    assert "OTel-OTLP-Exporter-Python" in headers["user-agent"]


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

        assert run.finish(20) is False
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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a stranger, and certificates of the authority."""
    return certificates(tmp_path_factory.mktemp("tls"))


@both
@needs_program("openssl")
def test_an_unknown_authority_is_named_as_the_cause(send: Send, protocol: str, files: Path) -> None:
    """The certificate of the server is not trusted: nothing is sent, and the message says so."""
    with collector(protocol, tls=files) as behavior:
        thread = send(behavior, protocol)
        wait_for(lambda: thread.failures, "it did not fail")

    assert behavior.requests == []
    assert "certificate" in thread.last_error.lower()


@both
@needs_program("openssl")
def test_the_authority_of_the_variable_is_the_one(
    send: Send, protocol: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`OTEL_EXPORTER_OTLP_CERTIFICATE` wins over `REQUESTS_CA_BUNDLE`."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(files / "stranger.pem"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(files / "authority.pem"))
    with collector(protocol, tls=files) as behavior:
        wait_until_settled(send(behavior, protocol))

    assert behavior.taken == list(range(ROWS))


@both
@needs_program("openssl")
@pytest.mark.parametrize("shown", [True, False])
def test_a_collector_that_asks_for_a_certificate(
    send: Send, protocol: str, shown: bool, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of its authority it takes the rows; without one nothing gets there, and that is a failure."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(files / "authority.pem"))
    if shown:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", str(files / "client.pem"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(files / "client.key"))
    with collector(protocol, tls=files, mutual=True) as behavior:
        thread = send(behavior, protocol)
        wait_for(lambda: thread.has_everything or thread.failures, "nothing happened")

        assert behavior.taken == (list(range(ROWS)) if shown else [])


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
