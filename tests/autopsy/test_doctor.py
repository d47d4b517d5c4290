"""The checks of `otel-rl doctor`: each is made to fail by what really breaks it, and says how to fix it."""

from __future__ import annotations

import errno
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl import semconv
from otel_rl.autopsy.doctor import collector, directories, gpus, limits, packages, ports, recording, settings, trackers
from otel_rl.autopsy.doctor.check import Check, CheckedMachine, Subject, examine
from otel_rl.autopsy.doctor.examination import SUBJECTS, Examination, examination
from otel_rl.autopsy.verbs.doctor import lines
from otel_rl.cli import main
from otel_rl.recorder.directory import directory as run_directories
from otel_rl.recorder.directory.agent_start import end_agents
from tests.certificates import Certificates
from tests.collector import free_port
from tests.real_parts import needs_program
from tests.recorder.agent.hardware import standin

HOME = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/")}


def machine(place: Path, environ: Mapping[str, str] | None = None, run: Path | None = None) -> CheckedMachine:
    variables = HOME | dict(environ or {})
    return CheckedMachine(
        variables, settings.loaded(variables), place, None if run is None else run_directories.at(run)
    )


def bad(found: Iterable[Check]) -> list[Check]:
    """Return what is not well; each has a fix."""
    wrong = [one for one in found if one.state in ("failed", "warning")]
    assert [one for one in wrong if not one.fix] == []
    return wrong


class Server:
    """An HTTP server that answers each request with a status and a body, and keeps what was asked."""

    def __init__(self, status: int = 200, body: bytes = b"", tls: Any = None) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(
                    (self.command, self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - the name is the library's

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(*args: Any, **options: Any) -> Server:
        made.append(Server(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@contextmanager
def listening() -> Iterator[int]:
    """A port that another program has, and that answers nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_each_wrong_variable_is_named(tmp_path: Path) -> None:
    """All of them, not only the first: unknown names, invalid values, misspelled standard ones, and no effect."""
    environ = {
        "OTEL_RL_WORLD": "2",
        "OTEL_RL_ROWS_EVERY": "often",
        "OTEL_EXPORTER_OTLP_ENDPOIN": "http://x:1",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "nothing",
        "OTEL_METRIC_EXPORT_INTERVAL": "soon",
        "OTEL_CONFIG_FILE": "x.yaml",
        "OTEL_RL_TRACES_RATIO": "0.5",
    }
    found = bad(settings.settings(machine(tmp_path, environ)))
    text = "\n".join(one.what for one in found)

    for name in list(environ)[:6]:
        assert name in text
    assert "OTEL_RL_TRACES_RATIO" not in text
    assert {one.state for one in found if "OTEL_RL_WORLD" in one.what or "EVERY" in one.what} == {"failed"}
    assert [one.state for one in settings.settings(machine(tmp_path))] == ["ok"]
    assert settings.loaded(environ) is not None  # the other checks look at what is valid


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    """The directory of runs, or one above it."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "runs"):
        (one,) = bad(directories.directory(machine(place)))
        assert one.state == "failed"
    assert [one.state for one in directories.directory(machine(tmp_path / "new" / "runs"))] == ["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_cannot_be_written() -> None:
    """By anybody, as /proc; the fix names the variable."""
    (one,) = bad(directories.directory(machine(Path("/proc/runs"))))

    assert one.state == "failed"
    assert "OTEL_RL_DIR" in one.fix


FULL = """
import resource, signal, sys
from pathlib import Path
from otel_rl.autopsy.doctor import directories
from otel_rl.autopsy.doctor.check import CheckedMachine
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
print([(one.state, one.what) for one in directories.directory(CheckedMachine({}, None, Path(sys.argv[1])))])
"""


def test_a_directory_without_room(tmp_path: Path) -> None:
    """The check reserves as much as a rank does, since a quota does not show otherwise; here, a limit of file sizes."""
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "failed" in printed
    assert os.strerror(errno.EFBIG) in printed


def test_who_listens_on_a_port() -> None:
    """The kernel says the user: a token for scraping is only for the programs of this one."""
    with listening() as port:
        assert ports.owners_of(port) == {os.geteuid()}


@pytest.mark.slow
def test_a_port_that_is_taken(tmp_path: Path, serve: Callable[..., Server]) -> None:
    """Another program has it, which is said, or another run's agent, which does no harm."""
    with listening() as port:
        (one,) = bad(ports.ports(machine(tmp_path, {"OTEL_EXPORTER_PROMETHEUS_PORT": str(port)})))
        assert str(port) in one.what
    agent = serve(200, b"# HELP rl_telemetry_heartbeat")
    own = {"OTEL_EXPORTER_PROMETHEUS_PORT": str(agent.port)}
    assert [one.state for one in ports.ports(machine(tmp_path, own))] == ["ok"]


def test_a_head_that_cannot_be_reached(tmp_path: Path) -> None:
    """A machine that is not the head connects once."""
    environ = {
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_RL_HEAD": "192.0.2.1:4320",
        "OTEL_RL_INSECURE": "true",
        "OTEL_RL_TOKEN": "a-token-of-16-characters",
    }
    found = bad(ports.ports(machine(tmp_path, environ)))

    assert [one.state for one in found] == ["failed"]
    assert "192.0.2.1:4320" in found[0].what


def test_an_endpoint_that_others_reach_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be refused at the start; the fix has the command."""
    environ = {"OTEL_EXPORTER_PROMETHEUS_HOST": "0.0.0.0", "XDG_CONFIG_HOME": str(tmp_path)}
    found = bad(ports.ports(machine(tmp_path, environ)))

    assert "otel-rl token" in found[-1].what + found[-1].fix


def endpoint(port: int, scheme: str = "http", **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"{scheme}://127.0.0.1:{port}", **more}


def test_a_collector(tmp_path: Path, serve: Callable[..., Server]) -> None:
    """It gets an empty request of each signal's address; it is closed, refuses, or is another server."""
    well = serve()
    assert [one.state for one in collector.collector(machine(tmp_path, endpoint(well.port)))] == ["ok"]
    assert sorted(well.asked) == [("POST", f"/v1/{signal}", b"") for signal in ("logs", "metrics", "traces")]
    closed = bad(collector.collector(machine(tmp_path, endpoint(free_port()))))
    assert "Connection refused" in closed[0].what
    refusing = bad(collector.collector(machine(tmp_path, endpoint(serve(401).port))))
    assert "OTEL_EXPORTER_OTLP_HEADERS" in refusing[0].fix
    other = bad(collector.collector(machine(tmp_path, endpoint(serve(404).port))))
    assert "404" in other[0].what
    assert [one.state for one in collector.collector(machine(tmp_path))] == ["skipped"]


@pytest.mark.parametrize("fault", ["expired", "self-signed", "wrong host", ""])
def test_the_certificate_of_a_collector(tmp_path: Path, serve: Callable[..., Server], fault: Any) -> None:
    """A wrong one is named as the problem, not as a server that does not answer."""
    certificates = Certificates(tmp_path, "127.0.0.1")
    server = serve(tls=certificates.contexts[fault])
    trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": certificates.environment["SSL_CERT_FILE"]}
    found = list(collector.collector(machine(tmp_path, endpoint(server.port, "https", **trusted))))

    assert {one.state for one in found} == {"failed" if fault else "ok"}
    assert all("certificate" in one.what for one in bad(found))


@pytest.mark.slow
def test_a_collector_over_grpc(tmp_path: Path) -> None:
    """A port that answers nothing, and a gRPC server."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    over = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "none"}
    over["OTEL_LOGS_EXPORTER"] = "none"
    try:
        assert [one.state for one in collector.collector(machine(tmp_path, endpoint(port, **over)))] == ["ok"]
    finally:
        server.stop(0)
    with listening() as silent:
        (one,) = bad(collector.collector(machine(tmp_path, endpoint(silent, **over))))
    assert "gRPC" in one.what


def exporter(name: str, **environ: str) -> dict[str, str]:
    return {"OTEL_RL_EXPORTERS": name, "NETRC": "/nowhere", **environ}


def test_trackers_with_a_server(tmp_path: Path, serve: Callable[..., Server]) -> None:
    """Each is asked who the key is of, and refuses it; no row is sent."""
    anonymous, unauthorized = serve(200, b'{"data": {"viewer": null}}'), serve(401)
    for environ in (
        exporter("wandb", WANDB_BASE_URL=f"http://127.0.0.1:{anonymous.port}", WANDB_API_KEY="k" * 40),
        exporter("mlflow", MLFLOW_TRACKING_URI=f"http://127.0.0.1:{unauthorized.port}"),
        exporter("swanlab", SWANLAB_API_HOST=f"http://127.0.0.1:{unauthorized.port}/api", SWANLAB_API_KEY="k" * 20),
    ):
        (one,) = bad(trackers.trackers(machine(tmp_path, environ)))
        assert (one.state, "refuses the login" in one.what) == ("failed", True)
    known = serve(200, b'{"data":{"viewer":{"username":"me"}}}')
    environ = exporter("wandb", WANDB_BASE_URL=f"http://127.0.0.1:{known.port}", WANDB_API_KEY="k" * 40)
    assert [one.state for one in trackers.trackers(machine(tmp_path, environ))] == ["ok"]
    assert [(method, path) for method, path, _ in known.asked] == [("POST", "/graphql")]


def test_trackers_that_cannot_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, a closed server, an unknown exporter, MLflow's file store."""
    for environ, said in (
        (exporter("wandb"), "no API key"),
        (exporter("mlflow", MLFLOW_TRACKING_URI=f"http://user:secret@127.0.0.1:{free_port()}"), "Connection refused"),
        (exporter("wanbd"), "wanbd"),
        (exporter("mlflow"), "file store"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", environ.get("MLFLOW_TRACKING_URI", "file:///tmp/mlruns"))
        (one,) = bad(trackers.trackers(machine(tmp_path, environ)))
        assert said in one.what
        assert "secret" not in one.what + one.fix
    offline = exporter("wandb", WANDB_MODE="offline")
    assert [one.state for one in trackers.trackers(machine(tmp_path, offline))] == ["ok"]


def test_a_package_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework that was not tested is a warning, a requirement that is missing a failure with the command."""
    versions = {"trl": "99.0", "wrapt": None, "msgspec": "0.1"}
    real = packages._version
    monkeypatch.setattr(packages, "_version", lambda name: versions.get(name, real(name)))
    found = {one.what.split()[0]: one for one in bad(packages.packages(machine(tmp_path)))}

    assert {name: one.state for name, one in found.items()} == {
        "trl": "warning",
        "wrapt": "failed",
        "msgspec": "failed",
    }
    assert found["wrapt"].fix.startswith("pip install 'wrapt")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.build(tmp_path_factory.mktemp("nvml"))


@needs_program("gcc")
@pytest.mark.parametrize(
    ("plays", "state", "said"),
    [("gpus=2", "ok", "2 GPUs answer"), ("gpus=2;lost=1", "failed", "GPU 1"), ("gpus=1;hang=0", "failed", "within")],
)
def test_gpus(
    plays: str, state: str, said: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All answer, one is gone, or the driver hangs, which ends after a time limit."""
    monkeypatch.setattr(gpus, "_PATIENCE_S", 2.0)
    first, *_ = gpus.gpus(machine(tmp_path, {"LD_LIBRARY_PATH": str(library), "NVML_STANDIN": plays}))

    assert (first.state, said in first.what) == (state, True)


@pytest.mark.parametrize("kind", ["LibRmVersionMismatch", "DriverNotLoaded", "LibraryNotFound", "Unknown"])
def test_a_driver_that_cannot_be_used(kind: str) -> None:
    """On a machine with the files of the driver, each error has its fix."""
    answer: dict[str, list[str] | str] = {"gpus": [], "lost": [], "error": kind, "text": kind}
    (one,) = bad(gpus.verdicts(answer, is_present=True))

    assert one.state == "failed"
    absent = [one.state for one in gpus.verdicts(answer, is_present=False)]
    assert absent == (["ok"] if kind in ("DriverNotLoaded", "LibraryNotFound") else ["failed"])


LIMITED = """
import resource
from pathlib import Path
from otel_rl.autopsy.doctor import limits
from otel_rl.autopsy.doctor.check import CheckedMachine
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))
print([(one.what, one.fix) for one in limits.limits(CheckedMachine({}, None, Path("."))) if one.state == "warning"])
"""


def test_too_few_open_files(tmp_path: Path) -> None:
    """The fix does not exceed the hard limit."""
    printed = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True).stdout

    assert "256 files" in printed
    assert "ulimit -n 1024" in printed


def test_a_cgroup_that_is_full() -> None:
    """And one in which the kernel has killed processes."""
    gib = float(1 << 30)
    names = {
        "limit": semconv.METRIC_CONTAINER_MEMORY_LIMIT,
        "usage": semconv.METRIC_CONTAINER_MEMORY_USAGE,
        "kills": semconv.METRIC_CONTAINER_MEMORY_OOM_KILLS,
    }
    full = {names["limit"]: 4 * gib, names["usage"]: 3.9 * gib, names["kills"]: 2.0}
    found = bad(limits._cgroup(full))

    assert ["3.9 of 4 GiB" in found[0].what, "2 processes" in found[1].what] == [True, True]
    assert bad(limits._cgroup({names["limit"]: 4 * gib, names["usage"]: gib})) == []


def test_shared_memory(tmp_path: Path) -> None:
    """One that is not there."""
    assert limits._shared_memory(tmp_path / "none").state == "warning"


def recorded(place: Path, **settings_: Any) -> Path:
    run = otel_rl.init(dir=place, project="p", id="x", hardware=False, quiet=True, **settings_)
    for step in range(3):
        with run.step(step):
            run.log({"loss": 1.0})
    run.finish(30)
    end_agents(30)
    return run.dir


def test_a_run_that_is_well(tmp_path: Path) -> None:
    """Its agent has ended, nothing was lost, no exporter is behind."""
    place = recorded(tmp_path, exporters=["jsonl"])
    found = list(recording.recording(machine(tmp_path, run=place)))

    assert bad(found) == []
    assert {one.name for one in found} == {"agent", "exporters", "losses"}


def test_a_run_whose_trainer_was_not_recorded_to_the_end(tmp_path: Path) -> None:
    """Processes that did not end, and no agent: `now.json` of an agent that was killed."""
    place = recorded(tmp_path, exporters=["jsonl"])
    (file,) = place.glob("archive/*/now.json")
    now = json.loads(file.read_bytes())
    who = {"attempt": 0, "role": "", "rank": 0, "host": "node1", "pid": 1, "step": 2, "step_started_unix_nano": 1}
    now["processes"] = [who | {"phases": [], "last_unix_nano": 1, "outcome": None}]
    now["time_unix_nano"] -= 10**12
    now["state"] = "ready"
    now["exporters"][0] |= {"waiting": 40, "failures": 3, "last_error": "429 too many requests"}
    file.write_text(json.dumps(now))
    found = bad(recording.recording(machine(tmp_path, run=place)))

    assert [one.name for one in found] == ["agent", "exporters"]
    assert "40 items behind: 429 too many requests" in found[1].what


def test_a_run_that_no_agent_has_read(tmp_path: Path) -> None:
    """The fix has the command."""
    place = recorded(tmp_path, exporters=["jsonl"], agent="off")
    (one,) = bad(recording.recording(machine(tmp_path, run=place)))

    assert one.fix == f"Deliver it with: otel-rl agent {place} --once"


def test_an_address_that_does_not_answer(tmp_path: Path) -> None:
    """Names that are unknown, and hosts that drop packets: a short reason, without objects of libraries."""
    for host in ("name.invalid", "192.0.2.1"):
        found = bad(
            collector.collector(machine(tmp_path, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{host}:1/x"}))
        )
        assert [one.state for one in found] == ["failed"]
        assert " object at " not in found[0].what


def test_clocks_that_differ(tmp_path: Path) -> None:
    """Two machines wrote `now.json` at once, by the file server's clock, with other times."""
    place = recorded(tmp_path, exporters=["jsonl"])
    (file,) = place.glob("archive/*/now.json")
    other = file.parent.with_name("node2") / "now.json"
    other.parent.mkdir()
    now = json.loads(file.read_bytes())
    other.write_text(json.dumps(now | {"time_unix_nano": time.time_ns() + 7 * 10**9}))
    (one,) = bad(recording.clocks(machine(tmp_path, run=place)))

    assert one.what.startswith("the clock of node2 is")


def test_checks_that_hang_or_break() -> None:
    """A check that hangs has failed, one that raises was not made; the others are shown, the worst first."""
    forever = threading.Event()

    def hang(_: CheckedMachine) -> Iterator[Check]:
        yield Check("a", "ok", "first")
        forever.wait()

    def broken(_: CheckedMachine) -> Iterator[Check]:
        raise RuntimeError("boom")

    def well(_: CheckedMachine) -> Iterator[Check]:
        yield Check("c", "ok", "well")

    subjects = [Subject("a", hang, 0.2), Subject("b", broken), Subject("c", well)]
    found = examine(subjects, None)  # type: ignore[arg-type]
    forever.set()

    assert [(one.name, one.state) for one in found] == [("a", "failed"), ("a", "ok"), ("c", "ok"), ("b", "skipped")]
    assert Examination("", tuple(found)).exit_code == 1
    assert Examination("", tuple(found[1:])).exit_code == 2
    assert Examination("", tuple(found[1:3])).exit_code == 0


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON in a pipe, text when asked, exit codes; a run that does not exist ends with 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_RL_ROWS_EVERY", "often")
    runner = CliRunner()
    piped = runner.invoke(main, ["doctor"])
    text = runner.invoke(main, ["doctor", "--text", "--ascii"])

    assert (piped.exit_code, text.exit_code, runner.invoke(main, ["doctor", "none"]).exit_code) == (1, 1, 2)
    assert json.loads(piped.output)["checks"][0]["state"] == "failed"
    assert "OTEL_RL_ROWS_EVERY" in text.output.splitlines()[0]
    assert list(tmp_path.iterdir()) == []


def test_texts_cannot_act_on_the_terminal() -> None:
    """The text of a server's error is shown on one line."""
    hostile = Check("trackers", "failed", "a\x1b[2Jb\nc", "x\x07y")
    shown = ["".join(span.text for span in row) for row in lines(Examination("", (hostile,)))]

    assert not any(character in "".join(shown) for character in "\x1b\n\x07")


def test_all_subjects_are_bounded(tmp_path: Path) -> None:
    """Every check of a machine ends, and names of subjects are unique."""
    assert len({one.name for one in SUBJECTS}) == len(SUBJECTS)
    found = examination(None, HOME | {"OTEL_RL_DIR": str(tmp_path)})

    assert {one.name for one in found.checks} >= {"settings", "packages", "directory", "ports", "limits", "clocks"}
    assert [one for one in found.checks if one.state == "failed"] == []
