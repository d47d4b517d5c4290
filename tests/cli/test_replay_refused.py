"""Why a replay does not begin."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_rl
from otel_rl.cli.late.replay import exporters_of, replay
from otel_rl.recorder.errors import SettingsError


@pytest.mark.parametrize("name", ["wandbb", "archive", "head", "prometheus", "evil\x1b[2J"])
def test_what_is_no_destination(name: str) -> None:
    """The error lists the exporters, or the one that was meant."""
    with pytest.raises(SettingsError, match="unknown exporter"):
        exporters_of([name])


def test_otlp_is_two_exporters() -> None:
    """Spans and rows have an exporter each."""
    assert list(exporters_of(["otlp"])) == ["otlp_traces", "otlp_logs"]


def test_a_run_that_has_nothing_to_replay(tmp_path: Path) -> None:
    """The error names the command that delivers what is in its journals."""
    run = otel_rl.init(dir=tmp_path, agent="off", exporters=[], quiet=True, id="one")
    run.log({"loss": 0.5}, step=0)
    run.finish(0)

    with pytest.raises(ValueError, match=f"otel-rl agent {run.dir} --once"):
        replay(run.dir, {}, print)
