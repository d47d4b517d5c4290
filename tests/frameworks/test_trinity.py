"""Trinity-RFT's own registry of monitors, aggregations and trainer loop, for real; its engine and explorer need GPUs.

The session `trinity` of `.ci/noxfile.py` runs them with both generations, 0.5 and 0.6.
"""

from __future__ import annotations

import json
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from otel_rl.export import Table
from otel_rl.frameworks import instrument, trinity
from tests.docs.snippets import coming_from
from tests.frameworks.recorded import Recorded, launched, messages_of, only, plain, tokens_of
from tests.frameworks.results import compared, logged, tensorboard

pytestmark = pytest.mark.timeout(500)
_NUMBERS = {"0.6.0": 40, "0.5.1": 33}
"""Values that the trainer of each generation logs in three steps."""
_PHASES = {"sample_data", "read_experience", "train_step"}


def test_a_monitor_of_its_registry(tmp_path: Path) -> None:
    """`monitor_type: otel_rl` is found there; it gets what Trinity's own TensorBoard monitor gets."""
    plain(tmp_path, "trinity_monitors.py", OTEL_RL_RUN_ID="trinity", OTEL_RL_CONTENT="true")
    recorded = only(tmp_path / "runs" / "p")
    own = tensorboard(tmp_path / "own" / "tensorboard" / "explorer")

    assert list(recorded.rows) == [1, 2, 3, 4]
    assert {step: pytest.approx(values) for step, values in recorded.rows.items()} == own
    assert [item.name for item in recorded.items if isinstance(item, Table)] == ["experiences"]


def test_the_trainer_without_changes(tmp_path: Path) -> None:
    """Every number that the trainer logs is in the row of its step; timers are phases; its monitor gets the same."""
    launched(tmp_path, "trinity_trainer.py", "tensorboard")
    recorded, wrote = only(tmp_path / "runs" / "rft"), logged(tmp_path / "logged.jsonl")
    ran = "Trainer.train for three steps under `otel-rl run`; a toy engine and buffer, the rest is Trinity's"
    version = metadata.version("trinity-rft")
    found = recorded.agrees(wrote, "trinity", version, ran)
    steps = {span.trace_id: span.attributes["rl.loop.iteration"] for span in recorded.roots}
    phases = {
        n: {s.attributes["rl.phase"] for s in recorded.spans if steps[s.trace_id] == n and s.name != "rl.loop"}
        for n in (1, 2, 3)
    }

    assert (found.steps, len(found.equal)) == ([1, 2, 3], _NUMBERS[version])
    assert all(found >= _PHASES for found in phases.values())
    assert "save_checkpoint" in phases[2]
    own = tensorboard(tmp_path / "own" / "tensorboard" / "trainer")
    assert {step: pytest.approx(values) for step, values in wrote.items()} == own


def test_texts_and_tokens_are_those_of_its_experiences(tmp_path: Path) -> None:
    """The trainer's run has the messages of each experience that a step trained on, with their tokens."""
    launched(tmp_path, "trinity_trainer.py", "tensorboard", OTEL_RL_CONTENT="true")
    directory = only(tmp_path / "runs" / "rft").directory
    steps = map(json.loads, (tmp_path / "batches.jsonl").read_text().splitlines())
    theirs = {
        line["step"]: sorted((tokens[2:], mask, logprobs, []) for tokens, mask, logprobs in line["experiences"])
        for line in steps
    }
    texts = {
        tuple((one["author"], one["text"], one["name"]) for one in own)
        for of_step in messages_of(directory).values()
        for own in of_step
    }

    assert tokens_of(directory) == theirs
    assert list(theirs) == [1, 2, 3]
    question = ("user", "What is 2 + 2?", "")
    assert texts == {
        (question, ("assistant", "It is 0.", "")),
        (question, ("assistant", "It is 1.", "")),
        (question, ("assistant", "", ""), ("tool", "4", "add"), ("assistant", "It is 4.", "")),
    }


def test_each_role_is_a_run(tmp_path: Path) -> None:
    """With the snippet of the page executed in Trinity's module, a run has Trinity's name and the role."""
    (tmp_path / "snippet.py").write_text(coming_from("Trinity-RFT"))
    plain(tmp_path, "trinity_trainer.py", "otel_rl", OTEL_RL_DIR="runs")
    of_the_snippet, directory = sorted((tmp_path / "runs" / "rft").iterdir())
    ((step, values),) = Recorded(of_the_snippet).rows.items()

    assert of_the_snippet.name.startswith("run_explorer-")
    assert (step, values["rollout/reward/mean"]) == (3, 0.5)
    assert directory.name.startswith("run_trainer-")
    assert compared(logged(tmp_path / "logged.jsonl"), Recorded(directory).rows).different == []


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
