"""The resource: standard variables win over otel-rl's defaults, but do not change which run it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.directory import Manifest


def test_the_environment_names_the_service_but_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run id that a job inherits from another one would file its metrics under the other run."""
    told = "service.instance.id=pod-7,deployment.environment.name=lab,rl.run.id=another,rl.run.name=x,rl.run.project=y"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", told)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "trainer")
    run = otel_rl.init(agent="off", exporters=[], dir=tmp_path, quiet=True, project="gsm8k", name="baseline")
    run.finish()
    resource = msgspec.json.decode(directories.at(run.dir).manifest.read_bytes(), type=Manifest).resource

    assert {
        name: resource[name] for name in ("service.name", "service.instance.id", "deployment.environment.name")
    } == {
        "service.name": "trainer",
        "service.instance.id": "pod-7",
        "deployment.environment.name": "lab",
    }
    assert (resource["rl.run.id"], resource["rl.run.name"], resource["rl.run.project"]) == (run.id, "baseline", "gsm8k")
