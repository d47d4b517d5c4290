"""Options of exporters that nobody would use: `init` says so."""

from __future__ import annotations

from typing import Any

import pytest

import otel_rl
from otel_rl.recorder.settings.loading import load
from otel_rl.recorder.trainer.manifest import exporters_and_readers


class Csv:
    """A backend that logs scalars."""

    def __init__(self, path: str = "out.csv") -> None:
        self.path = path

    def log_scalar(self, event: str, value: float, **kwargs: Any) -> None: ...

    def close(self) -> None: ...


def make(*, path: str) -> Csv:
    """Return a backend."""
    return Csv(path)


def refusal(*exporters: object) -> str:
    """Return what `init` says."""
    with pytest.raises(otel_rl.SettingsError) as caught:
        otel_rl.init(exporters=list(exporters), quiet=True)
    return str(caught.value)


@pytest.mark.parametrize(
    ("exporter", "told"),
    [
        ({f"{__name__}:Csv": {"file": "x"}}, "unexpected keyword argument 'file'; its options are: path"),
        ({f"{__name__}:make": {"file": "x", "path": "y"}}, "unexpected keyword argument 'file'; its options are: path"),
        (f"{__name__}:make", "missing a required argument: 'path'"),
        (lambda run, other: Csv(), "missing a required argument: 'other'"),
        ({"wandb": {"attach": True, "project": "x"}}, "project has no effect with 'attach'"),
        ({"wandb": {"attach": True, "active": "x"}}, "active has no effect with 'attach'"),
        ({"wandb": {"attach": "no"}}, "attach='no' must be True or False"),
    ],
)
def test_wrong_options(exporter: object, told: str) -> None:
    """They are refused at the start, and not by a thread of the agent later; the message lists those that there are."""
    assert told in refusal(exporter)


def test_the_options_of_a_backend() -> None:
    """Those that there are, are taken."""
    run = otel_rl.init(exporters=[{f"{__name__}:Csv": {"path": "a.csv"}}], quiet=True, agent="off")

    assert not run.finish(0)  # there is no agent


def test_a_variable_of_opentelemetry_does_not_remove_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that is named with options, and by a variable too, keeps its options: they are unknown here."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    assert "unexpected keyword argument 'where'" in refusal({"otlp_logs": {"where": "x"}})
    exporters, _ = exporters_and_readers(load({"exporters": ["otlp_logs"]}, {}))
    assert {name: options for name, options in exporters if "otlp" in name} == {"otlp_traces": {}, "otlp_logs": {}}
