"""Listeners that other machines reach need a token, and TLS unless it is said; tokens come from files."""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import stat
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import main
from otel_rl.export import Machine, NotNow, RunInfo
from otel_rl.recorder.settings import listeners, tokens
from otel_rl.recorder.settings.tokens import following
from otel_rl.serve.bridge.http import HttpServer
from otel_rl.serve.verbs import token as token_verb
from otel_rl_exporters.head import HeadExporter
from otel_rl_exporters.prometheus import PrometheusReader
from tests.collector import free_port
from tests.faults.misbehaving import certificates
from tests.real_parts import needs_program
from tests.serve.bridge.bridges import raw
from tests.serve.bridge.test_http import Taken

RUN = RunInfo("id", "p", "name", "/nowhere", {})


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the place of the user's own token."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("OTEL_RL_TOKEN", "OTEL_RL_TOKEN_FILE", "OTEL_RL_INSECURE", "OTEL_RL_TLS_CERTIFICATE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config" / "otel-rl" / "token"


def run_command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(arguments))
    return done.exit_code, done.output


def test_the_command(own: Path) -> None:
    """`otel-rl token` writes 32 random bytes for this user alone, prints where, and does not replace a token."""
    code, said = run_command("token")
    again, why = run_command("token")

    assert (code, said.splitlines()[0]) == (0, str(own))
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700
    assert len(own.read_text().strip()) == 43
    assert again == 1
    assert "--rotate" in why


def test_rotation(own: Path) -> None:
    """A listener that runs accepts the new token and the one before, and senders send the new one."""
    run_command("token")
    first = own.read_text().strip()
    listener, sender = tokens.find(), tokens.find()
    run_command("token", "--rotate")
    second = own.read_text().splitlines()[0]

    assert listener.accept(f"Bearer {second}")
    assert listener.accept(f"bearer {first}")
    assert sender.first == second != first
    run_command("token", "--rotate")
    assert not listener.accept(f"Bearer {first}")


def test_a_file_that_is_spoiled_later(own: Path) -> None:
    """A listener keeps its tokens: it is neither opened to all nor closed to all."""
    run_command("token")
    valid = tokens.find()
    first = valid.first
    own.write_text("")

    assert valid
    assert valid.accept(f"Bearer {first}")
    assert not valid.accept("Bearer ")


def test_compared_in_constant_time(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token of the file is compared with `hmac.compare_digest`, also after one that fits."""
    run_command("token")
    run_command("token", "--rotate")
    valid = tokens.find()
    compared: list[bytes] = []
    original = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or original(a, b))

    assert valid.accept(f"Bearer {valid.first}")
    assert compared == [line.encode() for line in own.read_text().split()]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read(mode: int, own: Path) -> None:
    """It is refused, with the command that makes it private."""
    run_command("token")
    own.chmod(mode)

    with pytest.raises(otel_rl.SettingsError, match=f"chmod 600 {own}"):
        tokens.find()


def test_a_pipe_instead_of_a_file(tmp_path: Path) -> None:
    """Nothing waits for a writer of the pipe."""
    os.mkfifo(tmp_path / "token", 0o600)
    with pytest.raises(otel_rl.SettingsError, match="is not a file"):
        tokens.find(file=tmp_path / "token")


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    """A named file must exist; the message has the command that creates it."""
    with pytest.raises(otel_rl.SettingsError, match=f"otel-rl token {tmp_path / 'token'}"):
        tokens.find({"OTEL_RL_TOKEN_FILE": str(tmp_path / "token")})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, True) for host in ("127.0.0.1", "::1", "[::1]", "localhost", "127.8.9.1")],
        *[(host, False) for host in ("0.0.0.0", "::", "", "192.0.2.1", "head.invalid")],
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    """All of 127/8 and ::1; no address that stands for all, and no name that is unknown."""
    assert listeners.is_loopback(host) is expected


@pytest.mark.parametrize(
    ("keywords", "variables"),
    [({"head": "192.0.2.1:4320"}, {}), ({}, {"OTEL_EXPORTER_PROMETHEUS_HOST": "0.0.0.0"})],
    ids=["head", "metrics"],
)
def test_init_refuses_an_open_listener(
    keywords: dict[str, str], variables: dict[str, str], own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token, also if it is said to be insecure; then without TLS. Each message has the way out."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    place = {"dir": str(tmp_path / "runs"), "id": "r", "rank": 0, "world_size": 2, "exporters": []} | keywords
    with pytest.raises(otel_rl.SettingsError, match="needs a token: run `otel-rl token`"):
        otel_rl.init(**place, insecure=True)  # type: ignore[arg-type]
    run_command("token")
    with pytest.raises(otel_rl.SettingsError, match=r"needs TLS: .*insecure=True"):
        otel_rl.init(**place)  # type: ignore[arg-type]
    assert otel_rl.current() is None


@pytest.mark.parametrize("option", ["--http", "--grpc"])
def test_the_bridge_refuses_an_open_listener(option: str, own: Path, tmp_path: Path) -> None:
    """The same rule and messages."""
    place = ["bridge", "--dir", str(tmp_path / "runs"), option, f"0.0.0.0:{free_port()}"]
    other = ["--http", f"127.0.0.1:{free_port()}"] if option == "--grpc" else ["--grpc", ""]
    code, said = run_command(*place, *other, "--insecure")
    run_command("token")
    again, why = run_command(*place, *other)

    assert (code, again) == (1, 1)
    assert "needs a token: run `otel-rl token`" in said
    assert "needs TLS: give --tls-cert and --tls-key" in why


def asked(url: str, tls: ssl.SSLContext | None = None, **headers: str) -> int:
    """Read a page, or send an empty request to a head; return the status."""
    request = Request(url, b"{}" if url.endswith("/v1/logs") else None, {"Content-Type": "application/json"} | headers)
    try:
        with urlopen(request, timeout=10, context=tls) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@needs_program("openssl")
def test_the_metrics_endpoint_over_tls(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate it needs no `insecure`. Plain HTTP gets no answer, and TLS replaces no token."""
    run_command("token")
    made = certificates(tmp_path)
    monkeypatch.setenv("OTEL_RL_TLS_CERTIFICATE", str(made / "server.pem"))
    monkeypatch.setenv("OTEL_RL_TLS_KEY", str(made / "server.key"))
    reader = PrometheusReader(RUN, host="0.0.0.0", port=free_port())
    port = int(str(reader.address).rpartition(":")[2].partition("/")[0])
    place = f"https://127.0.0.1:{port}/metrics"
    trusted = ssl.create_default_context(cafile=str(made / "authority.pem"))
    authorized = {"Authorization": f"Bearer {following(own.read_text().strip(), 'scrape')}"}
    try:
        found = [
            asked(place, trusted, **headers) for headers in ({}, {"Authorization": f"Bearer {'x' * 43}"}, authorized)
        ]
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            asked(place, ssl.create_default_context(), **authorized)
        head = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: {authorized['Authorization']}\r\n\r\n"
        answer = raw(port, head.encode())
    finally:
        reader.shutdown()

    assert str(reader.address).startswith("https://")
    assert found == [401, 401, 200]
    assert b"HTTP" not in answer


def test_a_run_with_a_token(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command, and other machines read the metrics of a run and reach its head, but nobody without the token."""
    run_command("token")
    ports = [free_port(), free_port()]
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "0.0.0.0")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(ports[0]))
    head = f"0.0.0.0:{ports[1]}"
    run = otel_rl.init(dir=tmp_path / "runs", quiet=True, insecure=True, head=head, hardware=False, strict=True)
    right = own.read_text().strip()
    scraping = following(right, "scrape")
    with run.step(0):
        run.log({"loss": 1.0})
    places = [f"http://127.0.0.1:{port}{path}" for port, path in zip(ports, ("/metrics", "/v1/logs"), strict=True)]
    texts = (f"Bearer {'x' * 43}", f"Basic {right}", f"Bearer {scraping}", f"Bearer {right}")
    given = [{}, *({"Authorization": text} for text in texts)]

    assert [[asked(place, **headers) for headers in given] for place in places] == [
        [401, 401, 401, 200, 401],  # the metrics endpoint
        [401, 401, 401, 401, 200],  # the head: who can scrape cannot write records
    ]
    assert run.finish(30)


def test_loopback_alone(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other address of the machine reaches the metrics and the head of a run unless it is said."""
    ports = [free_port(), free_port()]
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(ports[0]))
    run = otel_rl.init(dir=tmp_path, quiet=True, head=f"127.0.0.1:{ports[1]}", hardware=False, strict=True)
    for port in ports:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=10)
    assert run.finish(30)


def test_a_head_that_has_the_new_token_first(own: Path, tmp_path: Path) -> None:
    """Records wait if the head refuses the token, and are sent with the new one of the file, without a restart."""
    run_command("token")
    rotated = tmp_path / "of the head"
    token_verb.create(rotated)
    sink = Taken()
    server = HttpServer(("127.0.0.1", 0), sink, tokens.find(file=rotated))
    exporter = HeadExporter(RUN, address=f"127.0.0.1:{server.port}")
    machine = Machine(1, 1, {"system.cpu.utilization": 0.5})
    with pytest.raises(NotNow, match="401"):
        exporter.export([machine])
    own.write_bytes(rotated.read_bytes())
    exporter.export([machine])
    exporter.shutdown()
    server.close()

    assert len(sink.requests) == 1
