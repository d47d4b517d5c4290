"""MaxEnt-GRPO's package `maxent_grpo`, for real: its trainer, and its functions in a loop.

`OTEL_RL_SOURCES` has a checkout of revision 7266e31 as `maxent-grpo-7266e31`: main has `oat_drgrpo` instead.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace as Space
from typing import Any

import pytest

import otel_rl
from otel_rl.export import Table
from otel_rl.frameworks import maxent_grpo as ours
from otel_rl.frameworks.instrument import uninstrument
from otel_rl.frameworks.maxent_grpo_slim import slim
from tests.docs.snippets import coming_from
from tests.frameworks.recorded import EXAMPLES, Recorded, launched, only, plain
from tests.frameworks.results import SOURCES, by_step
from tests.semconv.names import rows

_SOURCE = SOURCES.absolute() / "maxent-grpo-7266e31" / "src"
pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.skipif(not _SOURCE.is_dir(), reason="no maxent-grpo-7266e31 in OTEL_RL_SOURCES"),
]
_TOKENS = 40
_CLAMPED = {"loss_per_completion_token": "loss", "kl_per_completion_token": "loss/kl"}


@pytest.fixture(scope="module")
def package() -> str:
    """The directory of the package."""
    return str(_SOURCE)


@pytest.fixture(scope="module")
def real(package: str) -> Iterator[Any]:
    """The package's module of metrics, without hooks."""
    sys.path.insert(0, package)
    yield import_module("maxent_grpo.training.metrics")
    sys.path.remove(package)


@pytest.fixture
def example(real: Any) -> Any:
    """The module of the example of a loop, and hooks that its import has set."""
    sys.path.insert(0, str(EXAMPLES))
    module = import_module("maxent_grpo_loop")
    sys.path.remove(str(EXAMPLES))
    ours.log_local_step  # noqa: B018 # sets the hooks
    return module


def test_the_trainer_is_recorded(package: str, tmp_path: Path) -> None:
    """Every number that the trainer logged is in the row of its step, and every name is known."""
    from transformers.integrations.integration_utils import rewrite_logs

    told = {"PYTHONPATH": package, "OTEL_RL_PROJECT": "p", "OTEL_RL_RUN_ID": "t"}
    launched(tmp_path, "maxent_grpo_trainer.py", "3", **told)
    history = json.loads((tmp_path / "history.json").read_text())
    wrote = by_step((one["step"], {n: v for n, v in rewrite_logs(one).items() if n != "train/step"}) for one in history)
    ran = "its trainer, entropy objective, evaluation, toy model"
    recorded = Recorded(tmp_path / "runs" / "p" / "t")
    found = recorded.agrees(wrote, "maxent_grpo", "7266e31, trl 0.18.0", ran)

    assert (found.steps, len(found.equal) > 300) == ([1, 2, 3], True)


@pytest.fixture(scope="module")
def loop(package: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop with the functions of otel-rl's module."""
    place = tmp_path_factory.mktemp("loop")
    plain(place, "maxent_grpo_loop.py", "6", PYTHONPATH=package)
    return place


def test_a_loop_of_ones_own_is_recorded(loop: Path) -> None:
    """Rows are what the package's writer got, but for values for each token, which it does not let be negative."""
    recorded = Recorded(loop / "runs" / "p" / "loop").rows
    written = json.loads((loop / "written.json").read_text())
    wrong = {
        name: (value, recorded[entry["step"]].get(name))
        for entry in written
        for name, value in entry["metrics"].items()
        if recorded[entry["step"]].get(name) != value and name.rpartition("/")[2] not in _CLAMPED
    }

    assert len(written) == 2 * len(recorded) == 12
    assert wrong == {}
    for values in recorded.values():
        for name, total in _CLAMPED.items():
            assert values[f"train/{name}"] == pytest.approx(values[f"train/{total}"] / _TOKENS)
    assert any(values["train/loss_per_completion_token"] < 0 for values in recorded.values())


def test_the_snippet_of_the_page_around_a_loop(package: str, tmp_path: Path) -> None:
    """Its run has a row for the first step and one for each ten steps, with averages of the slim metrics."""
    (tmp_path / "snippet.py").write_text(coming_from("MaxEnt-GRPO"))
    plain(tmp_path, "maxent_grpo_loop.py", "20", PYTHONPATH=package)
    recorded = only(tmp_path / "runs" / "maxent").rows
    written = json.loads((tmp_path / "written.json").read_text())
    losses = [entry["metrics"]["train/loss"] for entry in written if "train/loss" in entry["metrics"]]

    assert (len(losses), list(recorded)) == (20, [0, 10, 19])
    assert recorded[10]["train/loss"] == pytest.approx(sum(losses[1:11]) / 10)
    assert all(slim(values) == values for values in recorded.values())


def test_names_that_the_package_has_are_recorded(loop: Path) -> None:
    """The entropy of the policy, the diversity of completions and SEED-GRPO's statistics are among them."""
    (values, *_) = Recorded(loop / "runs" / "p" / "loop").rows.values()
    wanted = {"train/policy_entropy": 0.75, "train/seed_grpo/alpha_effective": 0.04, "eval_seed/pass_at_1": 0.5}

    assert {name: values[name] for name in wanted} == wanted
    assert "train/completions/diversity/distinct_1" in values


def test_the_table_is_the_packages(loop: Path) -> None:
    """Under the key of the arguments, with all columns, once in each step."""
    tables = [item for item in Recorded(loop / "runs" / "p" / "loop").items if isinstance(item, Table)]
    columns = ["step", "prompt_index", "completion_index", "group_size", "reward_rank_desc", "prompt", "completion"]

    assert len(tables) == 6
    assert {table.name for table in tables} == {"texts"}
    assert list(tables[0].columns)[:7] == columns


def test_it_says_what_goes_to_wandb_alone(real: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One line, when the trainer imports that evaluation, with what to do."""
    uninstrument("maxent_grpo")
    ours.log_local_step  # noqa: B018 # sets the hooks
    import_module("maxent_grpo.training.seed_paper_eval_callback")
    uninstrument("maxent_grpo")

    assert [line for line in caplog.messages if line.endswith("otel-rl run --capture wandb")] != []


def test_every_function_is_the_packages_own(real: Any) -> None:
    """This module has all its names, hooked; other names raise as there."""
    bare = {name: getattr(real, name) for name in real.__all__}
    found = {name: getattr(ours, name) for name in real.__all__}
    uninstrument("maxent_grpo")

    assert {name: getattr(value, "__wrapped__", value) for name, value in found.items()} == bare
    with pytest.raises(AttributeError):
        getattr(ours, "log_nothing")  # noqa: B009 # a constant name, which mypy would check


def test_the_package_prints_and_writes_the_same(
    real: Any, example: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With hooks and without: the lines of each step, and what its writer gets."""
    seen = []
    with otel_rl.init(dir=tmp_path, quiet=True), caplog.at_level("DEBUG", real.LOG.name):
        for hooked in (True, False):
            caplog.clear()
            assert hasattr(real.build_training_metrics_dict, "__wrapped__") is hooked
            seen.append(
                (example.train(3), [line.getMessage() for line in caplog.records if line.name == real.LOG.name])
            )
            uninstrument("maxent_grpo")

    assert len(seen[0][0]) == 6
    assert any(line.startswith("Global metrics (pretty) step 2") for line in seen[0][1])
    assert repr(seen[0]) == repr(seen[1])


@pytest.mark.parametrize("seed", range(20))
def test_the_same_calls_have_the_same_results(real: Any, example: Any, seed: int, tmp_path: Path) -> None:
    """With hooks and without, for any batch, and for arguments that raise."""
    uninstrument("maxent_grpo")
    prepared, artifacts = example.batch(random.Random(seed))

    def results(module: Any) -> list[Any]:
        state = Space(global_step=seed, num_input_tokens_seen=1.0, metric_sums={}, metric_counts={})
        calls = {
            "summarize_reward_stats": (Space(num_processes=1), prepared.reward_comp if seed % 3 else None),
            "summarize_weight_stats": (Space(num_processes=1), prepared.weight_stats),
            "accumulate_metrics": (state, {"a": 1, "b": "2", "c": math.nan, "d": True, "train/epoch": 3, "e": [1]}),
            "flush_metric_averages": (state,),
            "build_training_metrics_dict": (artifacts, seed),
            "log_training_metrics": (Space(), seed, None),
            "log_local_step": (Space(), state, prepared, artifacts, 0.1),
            "log_training_step": (None, state, prepared, artifacts, 0.1),
        }
        return [_outcome(getattr(module, name), arguments) for name, arguments in calls.items()]

    with otel_rl.init(dir=tmp_path, quiet=True):
        before = results(real)
        hooked = results(ours)
        uninstrument("maxent_grpo")

    assert repr(hooked) == repr(before)


def _outcome(function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(20))
def test_slim_is_the_packages(real: Any, seed: int) -> None:
    """Slim mode leaves out what the package's does; rewards whose names begin with `p` are another matter."""
    numbers = random.Random(seed)
    names = [row.name for row in rows("maxent_grpo") if row.kind != "text" and "/python_format/" not in row.name]
    values = {name: numbers.choice([0.0, 0.5, 1.0]) for name in names if numbers.random() < 0.9}

    assert slim(values) == real._slim_metrics(values, None)
