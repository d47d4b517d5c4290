"""Attacks on each listener: bodies that nobody wants, names of other sites, wrong tokens."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from opentelemetry.sdk.metrics import MeterProvider

import otel_rl
from otel_rl.export import RunInfo
from otel_rl.recorder.settings import tokens
from otel_rl.serve.bridge import rpc
from otel_rl.serve.bridge.http import HttpServer
from otel_rl_exporters.prometheus import PrometheusReader
from tests.collector import free_port
from tests.security.hostile import NAMES
from tests.serve.bridge.bridges import BODY, ask
from tests.serve.bridge.test_http import Taken

pytestmark = pytest.mark.timeout(120)
RUN = RunInfo("id", "p", "name", "/nowhere", {})
TOKEN = "a-token-of-the-tests"
_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


class Listener(NamedTuple):
    """A listener, and the request that it answers with 200."""

    port: int
    method: str
    path: str


@pytest.fixture(autouse=True)
def no_token_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("OTEL_RL_TOKEN", "OTEL_RL_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def metrics_endpoint() -> tuple[Listener, Callable[[], None]]:
    reader = PrometheusReader(RUN, port=free_port())
    provider = MeterProvider([reader.reader])
    provider.get_meter("test").create_gauge("gauge").set(1, {"name": "x"})
    port = int(str(reader.address).rpartition(":")[2].partition("/")[0])

    def close() -> None:
        reader.shutdown()
        provider.shutdown()

    return Listener(port, "GET", "/metrics"), close


def otlp_endpoint() -> tuple[Listener, Callable[[], None]]:
    server = HttpServer(("127.0.0.1", 0), Taken(), tokens.find())
    return Listener(server.port, "POST", "/v1/logs"), server.close


EVERY = pytest.mark.parametrize("make", [metrics_endpoint, otlp_endpoint])


@pytest.fixture
def channel() -> Iterator[Callable[..., grpc.Channel]]:
    server, port = rpc.serve("127.0.0.1:0", Taken())
    opened: list[grpc.Channel] = []

    def connect(*options: tuple[str, Any]) -> grpc.Channel:
        opened.append(grpc.insecure_channel(f"127.0.0.1:{port}", options))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()
    server.stop(0)


def status(listener: Listener, **headers: str) -> int:
    """Return the status of the answer to a request that is valid but for its headers."""
    body = BODY if listener.method == "POST" else None
    return ask(listener.port, body, listener.path, listener.method, **headers)[0].status


def resident() -> float:
    """Return the memory of this process, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@pytest.mark.parametrize("framing", ["Content-Length: 1000000000", "Transfer-Encoding: chunked"])
def test_a_body_at_the_metrics_endpoint_is_not_read(framing: str) -> None:
    """Nobody wants it: the answer comes before the body, and the connection is closed."""
    listener, close = metrics_endpoint()
    before = resident()
    answers = []
    for method in ("GET", "POST"):
        with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as connection:
            connection.sendall(f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode())
            sent = _pour(connection)
            answers.append((sent < 64, connection.recv(1 << 16)[:12]) if sent == 0 else (sent < 64, b""))
    grown = resident() - before
    close()

    assert [ended for ended, _ in answers] == [True, True]
    assert grown < 64


def _pour(connection: socket.socket) -> int:
    """Send a body until the connection is closed; return the MiB that were sent."""
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    sent = 0
    try:
        while sent < 256:
            connection.sendall(piece)
            sent += 1
    except OSError:
        pass
    return sent


@EVERY
@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "metrics"])
def test_a_rebound_name(make: Any, host: str) -> None:
    """A name that a stranger points to 127.0.0.1 gets no answer without a token, and the text has the fix."""
    listener, close = make()
    found = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=10)
    found.request(listener.method, listener.path, BODY if listener.method == "POST" else None, {"Host": host})
    answer = found.getresponse()
    text = answer.read().decode(errors="replace")
    found.close()
    close()

    assert answer.status == 421
    assert "use its address or localhost in the URL" in text


@EVERY
def test_names_of_this_machine(make: Any) -> None:
    """Addresses, localhost and the names of the machine are answered, with and without a port, in any case."""
    listener, close = make()
    own = socket.gethostname()
    names = ["127.0.0.1", "127.0.0.1:9464", "[::1]:80", "192.0.2.1", "localhost", "LOCALHOST.:1", own, own.upper()]
    found = {name: status(listener, Host=name, Content_Type="application/x-protobuf") for name in names}
    close()

    assert set(found.values()) == {200}, found


@EVERY
@pytest.mark.parametrize("origin", ["http://evil.example", "https://evil.example:8443", "null"])
def test_another_site(make: Any, origin: str) -> None:
    """A page of another site in a browser on this machine says where it is from, and is not answered."""
    listener, close = make()
    found = status(listener, Origin=origin), status(listener, Origin="http://localhost:3000")
    close()

    assert found == (421, 200)


def test_a_rebound_name_over_grpc(channel: Any) -> None:
    """The `:authority` is the name."""
    with pytest.raises(grpc.RpcError) as caught:
        channel(("grpc.default_authority", "evil.example")).unary_unary(_EXPORT)(BODY, timeout=10)
    channel(("grpc.default_authority", "localhost:1")).unary_unary(_EXPORT)(BODY, timeout=10)

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


@EVERY
def test_a_token_for_a_loopback_address(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token protects each listener, on loopback too; with it, any name of the server is answered."""
    monkeypatch.setenv("OTEL_RL_TOKEN", TOKEN)
    listener, close = make()
    right = TOKEN if listener.method == "POST" else tokens.following(TOKEN, "scrape")
    found = [status(listener), status(listener, Authorization=f"Bearer {right}", Host="head.example")]
    close()

    assert found == [401, 200]


@EVERY
def test_wrong_tokens(make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """More than ten in a minute get 429 and are counted; the right one is accepted: others share the address."""
    monkeypatch.setenv("OTEL_RL_TOKEN", TOKEN)
    listener, close = make()
    right = TOKEN if listener.method == "POST" else tokens.following(TOKEN, "scrape")
    found = [status(listener, Authorization=f"Bearer {n:020}") for n in range(20)]
    after = status(listener, Authorization=f"Bearer {right}")
    close()

    assert found == [401] * 10 + [429] * 10
    assert after == 200
    assert [text for text in caplog.messages if "HTTP 429" in text and "wrong tokens" in text]


@pytest.mark.parametrize("text", ["x", "secret", "fifteen letters"[:15].replace(" ", "-")])
def test_a_short_token(text: str, tmp_path: Path) -> None:
    """A variable or a file with one is refused, with the command that makes a good one."""
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(0o600)
    for given in ({"OTEL_RL_TOKEN": text}, {"OTEL_RL_TOKEN_FILE": str(tmp_path / "token")}):
        with pytest.raises(otel_rl.SettingsError, match="at least 16 characters; `otel-rl token`"):
            tokens.find(given)


def test_labels_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the page with `curl` sees no control character of a hostile name."""
    reader = PrometheusReader(RUN, port=free_port())
    provider = MeterProvider([reader.reader])
    gauge = provider.get_meter("test").create_gauge("gauge")
    for name in NAMES:
        gauge.set(1, {"name": name})
    port = int(str(reader.address).rpartition(":")[2].partition("/")[0])
    pages = [
        ask(port, None, "/metrics", "GET", Accept=kind)[1].decode()
        for kind in ("text/plain", "application/openmetrics-text")
    ]
    reader.shutdown()
    provider.shutdown()

    assert [page.count("\ngauge{") >= len(set(NAMES)) - 1 for page in pages] == [True, True]
    assert not [character for page in pages for character in re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page)]


_ROOT = Path(otel_rl.__file__).parents[1]
_SERVERS = r"http\.server|socketserver\.[A-Z]|import socketserver|HTTPServer\b|RequestHandler|grpc\.(aio\.)?server\(|"
_SERVERS += r"start_(http_)?server|make_server|\.listen\(|create_server|bind_sockets|uvicorn|aiohttp(?!/client|\|)"
_OPENED = re.compile(r"\b(Serving|HttpServer|rpc\.serve)\(")
_LIMITED = {"otel_rl/recorder/otlp/serving.py", "otel_rl/recorder/otlp/site.py", "otel_rl/serve/bridge/rpc.py"}


def code() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file of the library."""
    for folder in ("otel_rl", "exporters"):
        for path in (_ROOT / folder).rglob("*.py"):
            yield str(path.relative_to(_ROOT)), path.read_text()


def test_no_other_server() -> None:
    """Each listener is one of two servers, which have all limits."""
    assert {path for path, text in code() if re.search(_SERVERS, text)} == _LIMITED


def test_the_table_of_listeners() -> None:
    """SECURITY.md has a row for each file that opens a listener."""
    table = (_ROOT / "SECURITY.md").read_text().partition("### Listeners")[2]
    opened = {path for path, text in code() if _OPENED.search(text)} - {"otel_rl/serve/bridge/http.py"}

    assert opened
    assert not [path for path in opened if f"]({path})" not in table]
