"""Accelerate, for real: its trackers around a loop."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from otel_rl.export import Params
from tests.frameworks.results import compared, keep
from tests.processes import items_of, rows_of, run, start

pytestmark = pytest.mark.timeout(500)
_SCRIPT = Path(__file__).with_name("examples") / "accelerate_loop.py"
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def check(directory: Path) -> None:
    """Logged values are there, and other arguments of trackers cause no error."""
    rows = rows_of(directory)
    params = [item.values for item in items_of(directory) if isinstance(item, Params)]

    assert [(row["step"], row["values"]["reward"]) for row in rows] == [(n * 10, n / 3) for n in range(5)]  # type: ignore[index]
    assert rows[2]["values"]["loss"] == "NaN"  # type: ignore[index]
    assert params == [{"lr": 0.1, "layers": 2}]


def rounded(value: object) -> float:
    """Return a number with the digits that single precision has for sure."""
    return float(f"{float(str(value)):.6g}")


def test_the_tracker(tmp_path: Path) -> None:
    """One line: the tracker that is given to `log_with`."""
    run([sys.executable, str(_SCRIPT)], tmp_path, **_ONE_THREAD)

    check(tmp_path / "runs" / "p" / "accelerated")


def test_no_line(tmp_path: Path) -> None:
    """With `otel-rl run`; its own trackers get the same, the user's project wins, and one line says what is missing."""
    lines = _SCRIPT.read_text().splitlines(keepends=True)
    plain = "".join(line for line in lines if "OtelRlTracker" not in line)
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "accelerate", "--", sys.executable, "-c"]
    told = {"OTEL_RL_RUN_ID": "accelerated", "OTEL_RL_PROJECT": "mine", "OTEL_RL_HARDWARE": "0"}
    process = start([*command, plain.replace("=tracker", '="tensorboard"')], tmp_path, **told, **_ONE_THREAD)
    errors = process.communicate(timeout=300)[1]
    assert (process.returncode, errors.count("this trainer of accelerate has no timers")) == (0, 1)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = tmp_path / "runs" / "mine" / "accelerated"
    (logs,) = {path.parent for path in (tmp_path / "own").rglob("events.out.tfevents*") if path.parent.name == "p"}
    own = EventAccumulator(str(logs), {"scalars": 0}).Reload()
    wrote = {(event.step, tag): rounded(event.value) for tag in own.Tags()["scalars"] for event in own.Scalars(tag)}
    del wrote[20, "loss"]  # NaN, see `check`
    rows = [
        {"step": row["step"], "values": {name: rounded(value) for name, value in row["values"].items()}}  # type: ignore[attr-defined]
        for row in rows_of(directory)
    ]
    found = compared(wrote, rows)
    ran = "a loop with prepare, backward and TensorBoard's tracker, on a CPU"
    note = "compared in TensorBoard's single precision; users choose the names"
    keep("accelerate", version("accelerate"), ran, found, None, explained=note)

    check(directory)
    assert found.different == []
    assert len(found.equal) == 9
