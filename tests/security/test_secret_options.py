"""Secret options of exporters: the agent has them, and no file does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.directory import secret_options
from otel_rl.recorder.directory.directory import Manifest
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.trainer.run import Run
from tests.collector import wait_for

EXPORTER = "tests.security.keeping:Keeping"


@pytest.fixture(autouse=True)
def _nothing_taken() -> None:
    """Forget what another test passed."""
    secret_options._taken.clear()


def options() -> dict[str, Any]:
    secret = "k7" + os.urandom(12).hex()
    return {
        "api_key": secret,
        "headers": {"x-team": secret[:10]},
        "uri": f"https://me:{secret[10:]}@tracker.example/",
        "tags": ["a", "b"],
        "token_length": 4,
    }


def kept(run: Run) -> list[dict[str, Any]]:
    path = run.dir / "kept.json"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_agent_has_them_and_its_children_and_files_do_not(tmp_path: Path) -> None:
    """The exporter gets its options as given; `run.json` and the environment of its child processes do not."""
    given = options()
    with otel_rl.init(dir=str(tmp_path / "runs"), exporters=[{EXPORTER: given}]) as run, run.step(0):
        run.log({"loss": 1.0})

    found = kept(run)[0]
    manifest = (run.dir / "run.json").read_text()
    assert found == {"options": given, "inherits": False}
    assert manifest.count(secret_options.PLACEHOLDER) == 3
    assert given["api_key"][:10] not in manifest
    assert given["api_key"][10:] not in manifest


@pytest.mark.slow
def test_a_restarted_agent_has_them(tmp_path: Path) -> None:
    """An agent that was killed is restarted with the same secret options."""
    given = options()
    run = otel_rl.init(dir=str(tmp_path / "runs"), exporters=[{EXPORTER: given}])
    wait_for(lambda: len(kept(run)) == 1, "the exporter is not built")
    status = next(run.dir.glob("local/*/agent.json"))
    os.kill(json.loads(status.read_bytes())["pid"], signal.SIGKILL)
    wait_for(lambda: len(kept(run)) == 2, "the exporter is not built again", timeout=60)
    run.finish()

    assert [one["options"] for one in kept(run)[:2]] == [given, given]


def test_an_agent_by_hand_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`otel-rl agent --once` names the missing option; the tracker's variable and the settings file have it."""
    given = {"api_key": options()["api_key"]}
    run = otel_rl.init(dir=str(tmp_path / "runs"), exporters=[{EXPORTER: given}], agent="off")
    with run.step(0):
        run.log({"loss": 1.0})
    run.finish(0)

    command = [sys.executable, "-m", "otel_rl.cli", "agent", str(run.dir), "--once"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert failed.returncode == 1
    assert "the option api_key is a secret, which run.json does not have: set KEEPING_API_KEY" in failed.stderr
    manifest = secret_options.without_secrets(_manifest(run))[0]
    with pytest.raises(SettingsError, match=r"otel-rl\.toml"):
        secret_options.with_secrets(manifest, {}, dict)
    for environ, in_file in (({"KEEPING_API_KEY": "abc"}, {}), ({}, {EXPORTER: {"api_key": "abc"}})):
        restored = secret_options.with_secrets(manifest, dict(environ), lambda in_file=in_file: in_file)  # type: ignore[misc]
        assert dict(restored.exporters)[EXPORTER] == {"api_key": "abc"}


def _manifest(run: Run) -> Any:
    return msgspec.json.decode((run.dir / "run.json").read_bytes(), type=Manifest)
