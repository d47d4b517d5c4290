"""The modules that starting the command line loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import main
from tests.processes import run_python

HEAVY = (
    *("opentelemetry.sdk", "opentelemetry.exporter", "prometheus_client", "requests", "grpc", "google.protobuf"),
    *("otel_rl.agent.process", "otel_rl.agent.once", "otel_rl.otlp", "otel_rl.integrations", "otel_rl_exporters"),
    *("torch", "numpy", "rich", "yaml", "psutil", "tornado"),
)


@pytest.mark.parametrize("arguments", [["--help"], ["agent", "--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_is_light(arguments: list[str], tmp_path: Path) -> None:
    """Help loads no SDK, no agent, no server and no package that draws, so that it takes less than 0.4 s."""
    script = f"""
import sys
from otel_rl.cli import main
main({arguments}, standalone_mode=False)
print("loaded:", [name for name in {HEAVY} if name in sys.modules])
"""

    assert run_python(script, tmp_path).endswith("loaded: []\n")


@pytest.mark.slow
@pytest.mark.parametrize("output", [">&-", "2>&1 >/dev/full", "| true"])
def test_an_output_that_cannot_be_written(output: str, tmp_path: Path) -> None:
    """Closed, full or not read: no command prints a traceback."""
    otel_rl.init(dir=tmp_path, agent="off", exporters=[], quiet=True, id="one").finish(0)
    calls = [*(f"{name} --help" for name in main.commands), f"ls {tmp_path}", f"top --once {tmp_path}", "ls --json one"]
    script = "\n".join(f"{sys.executable} -m otel_rl.cli {call} {output}" for call in calls)
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "Traceback" not in ended.stderr + ended.stdout


def test_status_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A list of servers, here of none, and the exit code that it has without `--json`."""
    monkeypatch.setenv("PATH", str(tmp_path))  # no container engine
    result = CliRunner().invoke(main, ["stack", "status", "--json"])

    assert (result.exit_code, result.output) == (1, "[]\n")
