"""What W&B's users write on a run: it works, or a warning says what to write instead, and the training goes on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_rl import Run
from otel_rl.recorder.journal.records import Configured
from otel_rl.recorder.trainer.habits import INSTEAD
from tests.real_parts import needs
from tests.recorder.trainer.reading import RecordsOf, begin, logged


@needs("wandb")
def test_every_attribute_of_wandbs_run(recording: Run) -> None:
    """Each public one of the installed W&B is there, and none but those that the run really has is listed."""
    import wandb

    public = {name for name in (*dir(wandb.Run), *wandb.Run.__annotations__) if not name.startswith("_")}
    for name in public | {"summary"}:
        getattr(recording, name)

    assert not INSTEAD.keys() & set(dir(recording))
    assert {name for name in INSTEAD if name not in public} <= {"summary"}


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_whatever_is_done_with_it(recording: Run, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """It can be called, entered, indexed, set, printed and iterated over; one warning names it and the fix."""
    absent: Any = getattr(recording, name)
    with absent(1, two=2).three as found:
        found["a"]["b"] = found.c.d = 1
    setattr(recording, name, absent + ("x",))  # noqa: RUF005 - as it is written for tags

    assert (f"{absent}", f"{absent['best']:.3f}", list(absent), bool(absent)) == ("", "", [], False)
    assert not absent["best"] > 0.5
    assert absent.get("best", 3) == 3
    assert list(range(absent, 1)) == [0]
    assert caplog.messages == [f"run.{name}: only W&B's run has it; {INSTEAD[name]} (refused 1 time)"]


def test_other_names_are_errors_of_the_script(recording: Run) -> None:
    """`hasattr` is false for names that nobody has, and Python suggests the one that was meant."""
    with pytest.raises(AttributeError) as caught:
        recording.lgo  # type: ignore[attr-defined]  # noqa: B018

    assert (caught.value.name, caught.value.obj) == ("lgo", recording)


def test_config(tmp_path: Path, records_of: RecordsOf) -> None:
    """What `init` was given can be read by name and item; what is set is recorded as a hyper-parameter."""

    @dataclass(slots=True)
    class More:
        depth: int = 2

    class Own:
        def __init__(self) -> None:
            self.width = 3

    run: Any = begin(tmp_path, config={"lr": 1e-6})
    run.config.seed = 1
    run.config["batch"] = 8
    run.config.update(argparse.Namespace(layers=4), allow_val_change=True)
    run.config.update(More())
    run.config.update(Own())
    run.config.setdefaults({"seed": 2})
    run.config = {"top": 5}
    del run.config.layers
    values = [record.values for record in records_of(run) if isinstance(record, Configured)]

    assert run.config.as_dict() == {"lr": 1e-6, "seed": 1, "batch": 8, "depth": 2, "width": 3, "top": 5}
    assert (run.config.lr, run.config["seed"]) == (1e-6, 1)
    updates = [{"seed": 1}, {"batch": 8}, {"layers": 4}, {"depth": 2}, {"width": 3}, {"top": 5}]
    assert [*filter(None, values)] == [{"lr": 1e-6}, *updates]


def test_names(tmp_path: Path) -> None:
    """`name` and `project` can be read; setting them changes nothing, and is refused."""
    run: Any = begin(tmp_path, name="first")
    run.name = "second"

    assert (run.name, run.project, run.refused) == ("first", "test", {"wandb": 1})


def test_calls_of_one_step_are_one_row(recording: Run, records_of: RecordsOf) -> None:
    """`commit=` is accepted: in W&B it keeps calls together, which the step does here."""
    with recording.step(3):
        recording.log({"loss": 1.0}, commit=False)
        recording.log({"kl": 2.0}, commit=True)

    assert (logged(records_of(recording)), recording.refused) == ([(3, {"loss": 1.0}), (3, {"kl": 2.0})], {})
