"""A plain PyTorch loop, recorded without a line in it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from otel_rl.export import Span
from otel_rl.setup import agent_start
from otel_rl.setup import directory as directories
from tests.collector import wait_for
from tests.processes import items_of, rows_of, run, start
from tests.real_parts import needs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500), needs("tensorboard")]
_SCRIPT = str(Path(__file__).with_name("examples") / "torch_ppo.py")
_TOLD = {"OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "loop", "OTEL_RL_HARDWARE": "0", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the script wrote to TensorBoard, and the run is."""
    place: Path = tmp_path_factory.mktemp("torch")
    options = ["--instrument", "torch", "--capture", "tensorboard"]
    output = run([sys.executable, "-m", "otel_rl.cli", "run", *options, "--", sys.executable, _SCRIPT], place, **_TOLD)
    assert output == "updates 12\n"
    run_dir = place / "runs" / "p" / "loop"
    wait_for(lambda: agent_start.read_status(directories.at(run_dir)).state == "ended", "the agent does not end")
    return place


def test_steps_are_the_optimizers(directory: Path) -> None:
    """Each update is a step; they go on from the last captured step, so that both have one axis."""
    spans = [item for item in items_of(directory / "runs" / "p" / "loop") if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    inside = [Counter(s.attributes["rl.phase"] for s in spans if s.parent_id == root) for root in roots]

    assert list(roots.values()) == [0, 1, 2, 3, 128, 129, 130, 131, 256, 257, 258, 259]
    assert all((found["backward"], found["optimizer_step"]) == (1, 1) for found in inside)
    assert sum(found["data"] for found in inside) == 17  # 12 batches and 6 ends of an epoch, but for the first batch
    assert [span.error for span in spans if span.error] == []


def test_rows_are_what_the_script_logged(directory: Path) -> None:
    """Number by number, in single precision, as TensorBoard has them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_dir = directory / "runs" / "p" / "loop"
    own = EventAccumulator(str(directory / "tb"), {"scalars": 0}).Reload()
    told = {(event.step, tag): event.value for tag in own.Tags()["scalars"] for event in own.Scalars(tag)}
    rows = {row["step"]: row["values"] for row in rows_of(run_dir)}

    assert len(told) == 9
    for (step, tag), value in told.items():
        assert rows[step][tag] == pytest.approx(value, rel=1e-6)  # type: ignore[index]


def test_a_script_of_which_nothing_is_recorded_says_so(tmp_path: Path) -> None:
    """One line names what can be done."""
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, _SCRIPT]
    process = start(command, tmp_path, **_TOLD)
    _, errors = process.communicate(timeout=400)

    assert process.returncode == 0
    assert errors.count("otel-rl recorded nothing") == 1
    assert "--instrument torch" in errors
    assert not (tmp_path / "runs").exists()
