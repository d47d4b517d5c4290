"""Options of exporters that nobody would use: `init` says so."""

from __future__ import annotations

from typing import Any

import pytest

import otel_rl
from otel_rl.setup.loading import load
from otel_rl.trainer.manifest import exporters_and_readers


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


def test_an_unknown_option_of_a_backend() -> None:
    """It is refused at the start, and not by a thread of the agent later; the message lists the options."""
    assert "unexpected keyword argument 'file'; its options are: path" in refusal({f"{__name__}:Csv": {"file": "x"}})
    assert "unexpected keyword argument 'file'; its options are: path" in refusal(
        {f"{__name__}:make": {"file": "x", "path": "y"}}
    )


def test_an_option_that_is_missing() -> None:
    """A backend that cannot be built without it."""
    assert "missing a required argument: 'path'" in refusal(f"{__name__}:make")
    assert "missing a required argument: 'other'" in refusal(lambda run, other: Csv())


def test_the_options_of_a_backend() -> None:
    """Those that there are, are taken."""
    run = otel_rl.init(exporters=[{f"{__name__}:Csv": {"path": "a.csv"}}], quiet=True, agent="off")

    assert run.finish(0) is False  # there is no agent


@pytest.mark.parametrize("name", ["project", "active"])
def test_options_beside_attach(name: str) -> None:
    """The run is the trainer's own, so that other options would change nothing."""
    assert f"{name} has no effect with 'attach'" in refusal({"wandb": {"attach": True, name: "x"}})


def test_attach_is_a_truth() -> None:
    """A text such as "no" would be true."""
    assert "attach='no' must be True or False" in refusal({"wandb": {"attach": "no"}})


def test_a_variable_of_opentelemetry_does_not_remove_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that is named with options, and by a variable too, keeps its options: they are unknown here."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    assert "unexpected keyword argument 'where'" in refusal({"otlp_logs": {"where": "x"}})
    exporters, _ = exporters_and_readers(load({"exporters": ["otlp_logs"]}, {}))
    assert dict(exporters) == {"otlp_traces": {}, "otlp_logs": {}}
