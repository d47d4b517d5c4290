"""Trinity-RFT's own registry of monitors, aggregations and trainer loop, for real; its engine and explorer need GPUs.

The session `trinity` of `.ci/noxfile.py` runs them with both generations, 0.5 and 0.6.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from otel_rl.export import Span, Table
from otel_rl.integrations import instrument, trinity
from otel_rl.semconv.drift import sorted_out
from tests.docs.snippets import coming_from
from tests.frameworks.results import compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_EXAMPLES = Path(__file__).with_name("examples")
_QUIET = {"OTEL_RL_HARDWARE": "false"}
_NUMBERS = {"0.6.0": 40, "0.5.1": 33}
"""Values that the trainer of each generation logs in three steps."""
_PHASES = {"sample_data", "read_experience", "train_step"}


def run_dir(directory: Path, project: str) -> Path:
    """Return the run directory of a project; there is one."""
    (found,) = (directory / "runs" / project).iterdir()
    return found


def logged(directory: Path) -> dict[int, dict[str, float]]:
    """Return what the monitor of the trainer got, by step."""
    rows = [json.loads(line) for line in (directory / "logged.jsonl").read_text().splitlines()]
    return {row["step"]: row["values"] for row in rows}


def scalars(directory: Path) -> dict[int, dict[str, float]]:
    """Return the numbers that Trinity's TensorBoard monitor wrote, by step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), {"scalars": 0}).Reload()
    found: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            found.setdefault(event.step, {})[tag] = event.value
    return found


def test_a_monitor_of_its_registry(tmp_path: Path) -> None:
    """`monitor_type: otel_rl` is found there; it gets what Trinity's own TensorBoard monitor gets."""
    run(
        [sys.executable, str(_EXAMPLES / "trinity_monitors.py")],
        tmp_path,
        OTEL_RL_RUN_ID="trinity",
        OTEL_RL_CONTENT="true",
        **_QUIET,
    )
    directory = run_dir(tmp_path, "p")
    rows = {row["step"]: row["values"] for row in rows_of(directory)}
    own = scalars(tmp_path / "own" / "tensorboard" / "explorer")

    assert list(rows) == [1, 2, 3, 4]
    assert {step: pytest.approx(values) for step, values in rows.items()} == own
    assert [item.name for item in items_of(directory) if isinstance(item, Table)] == ["experiences"]


def test_the_trainer_without_changes(tmp_path: Path) -> None:
    """Every number that the trainer logs is in the row of its step; timers are phases; its monitor gets the same."""
    command = [str(Path(sys.executable).with_name("otel-rl")), "run", "--", sys.executable]
    run([*command, str(_EXAMPLES / "trinity_trainer.py"), "tensorboard"], tmp_path, **_QUIET)
    directory = run_dir(tmp_path, "rft")
    wrote = {(step, name): value for step, values in logged(tmp_path).items() for name, value in values.items()}
    found = compared(wrote, rows_of(directory))
    ran = "Trainer.train for three steps under `otel-rl run`; a toy engine and buffer, the rest is Trinity's"
    keep("trinity", metadata.version("trinity-rft"), ran, found, phase_coverage(directory))
    spans = [item for item in items_of(directory) if isinstance(item, Span)]
    steps = {span.trace_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = {
        n: {s.attributes["rl.phase"] for s in spans if steps[s.trace_id] == n and s.name != "rl.loop"}
        for n in (1, 2, 3)
    }

    assert (found.different, found.steps) == ([], [1, 2, 3])
    assert len(found.equal) == _NUMBERS[metadata.version("trinity-rft")]
    assert sorted_out(found.names, "trinity").unknown == []
    assert all(found >= _PHASES for found in phases.values())
    assert "save_checkpoint" in phases[2]
    own = scalars(tmp_path / "own" / "tensorboard" / "trainer")
    assert {step: pytest.approx(values) for step, values in logged(tmp_path).items()} == own


def test_each_role_is_a_run(tmp_path: Path) -> None:
    """With the snippet of the page executed in Trinity's module, a run has Trinity's name and the role."""
    (tmp_path / "snippet.py").write_text(coming_from("Trinity-RFT"))
    run([sys.executable, str(_EXAMPLES / "trinity_trainer.py"), "otel_rl"], tmp_path, OTEL_RL_DIR="runs", **_QUIET)
    of_the_snippet, directory = sorted((tmp_path / "runs" / "rft").iterdir())
    rows = {row["step"]: row["values"] for row in rows_of(directory)}
    (row,) = rows_of(of_the_snippet)

    assert of_the_snippet.name.startswith("run_explorer-")
    assert (row["step"], row["values"]["rollout/reward/mean"]) == (3, 0.5)  # type: ignore[index]
    assert directory.name.startswith("run_trainer-")
    assert [step for step, values in logged(tmp_path).items() if not values.items() <= rows[step].items()] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ["monitor", "metrics"])
def test_the_names_are_trinitys_own(module: str) -> None:
    """Each public name of the installed version is the same object here, with recording switched on."""
    if find_spec(f"trinity.utils.{module}") is None:
        pytest.skip("a module of 0.6")
    own = import_module(f"trinity.utils.{module}")
    names = [name for name, value in vars(own).items() if getattr(value, "__module__", "") == own.__name__]

    assert names
    assert [name for name in names if getattr(trinity, name) is not getattr(own, name)] == []
    assert "trinity" in instrument.active()


def test_a_name_that_trinity_does_not_have() -> None:
    """Importing it fails, as it does from Trinity."""
    with pytest.raises(AttributeError, match="no 'gather_everything'"):
        trinity.gather_everything  # noqa: B018 - the access is the test
