"""The dialects of verl, TRL, OpenRLHF, SkyRL and NeMo Lens, over the names that their code logs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from otel_rl.semconv import registry
from otel_rl.semconv.dialect import dialect
from otel_rl.semconv.frameworks import DIALECTS
from otel_rl.stats import statistics

OTHERS = ("verl", "trl", "openrlhf", "skyrl", "nemo_lens", "nemo_rl", "roll", "trinity")
STRANGE = ("generate", "weight_sync", "step", "mean@08", "node.00.gpu.01.util", "p99.9", "", "{phase}", "\n")
NAMES = Path(__file__).parent.parent / "data" / "names"


def captured(framework: str) -> list[str]:
    """Return the names that were read in the framework's code; comments tell where."""
    lines = (NAMES / f"{framework}.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def point(framework: str, name: str, value: float) -> tuple[str, dict[str, str | int], float]:
    """Return the metric, the attributes and the value in the registry's unit that a logged value becomes."""
    reading = dialect(framework).read(name)
    assert reading is not None
    return reading.metric, dict(reading.attributes), value * reading.factor


@pytest.mark.parametrize("framework", OTHERS)
def test_every_name_is_mapped_or_left_with_a_reason(framework: str) -> None:
    """Each name that the framework logs is either mapped or passed, with a reason."""
    known = dialect(framework)

    assert [name for name in captured(framework) if known.read(name) is None and not known.passes(name)] == []


@pytest.mark.parametrize("framework", OTHERS)
def test_every_name_can_be_spelled_back(framework: str) -> None:
    """A reading leads back to the identical name."""
    known = dialect(framework)
    readings = {name: reading for name in captured(framework) if (reading := known.read(name)) is not None}
    back = {name: known.spellings(r.metric, dict(r.attributes))[r.alias] for name, r in readings.items()}

    assert back == {name: name for name in readings}


@pytest.mark.parametrize("framework", OTHERS)
def test_readings_are_of_the_registry(framework: str) -> None:
    """A name becomes a gauge or a total that is described, with attributes that it is described with."""
    for name in captured(framework):
        reading = dialect(framework).read(name)
        if reading is not None:
            metric = registry.metrics()[reading.metric]

            assert metric.instrument in ("gauge", "counter", "updowncounter"), name
            assert {key for key, _ in reading.attributes} <= set(metric.attribute_names), name


@pytest.mark.parametrize("framework", OTHERS)
def test_reducers_exist(framework: str) -> None:
    """How ranks are reduced is a statistic, where the dialect or the registry says it."""
    readings = [dialect(framework).read(name) for name in captured(framework)]

    assert all(statistics.is_statistic(reading.reduce) for reading in readings if reading and reading.reduce)


@pytest.mark.parametrize("framework", OTHERS)
def test_names_were_read_in_code_of_a_known_version(framework: str) -> None:
    """Each list of names begins with where it comes from, and holds no name twice."""
    names = captured(framework)

    assert (NAMES / f"{framework}.txt").read_text().startswith("# ")
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("framework", DIALECTS)
def test_no_name_is_too_strange_to_be_read(framework: str) -> None:
    """Whatever is logged, a dialect knows it and can spell it back, or does not know it."""
    known = dialect(framework)
    names = {name for other in OTHERS for name in captured(other)}
    names |= {f"{name.rpartition('/')[0]}/{end}" for name in names for end in STRANGE}
    readings = {name: reading for name in names if (reading := known.read(name)) is not None}

    assert [
        name for name, r in readings.items() if known.spellings(r.metric, dict(r.attributes))[r.alias] != name
    ] == []


def test_coverage() -> None:
    """Mapped and passed names add up to the captured ones; `pytest -s` shows the table."""
    table = [f"{'framework':12}{'captured':>10}{'mapped':>10}{'passing':>10}"]
    for framework in OTHERS:
        names = captured(framework)
        mapped = [name for name in names if dialect(framework).read(name) is not None]
        passing = [name for name in names if name not in mapped and dialect(framework).passes(name)]
        table.append(f"{framework:12}{len(names):>10}{len(mapped):>10}{len(passing):>10}")

        assert len(mapped) + len(passing) == len(names)
        assert mapped
    sys.stdout.write("\n".join(["", *table, ""]))


@pytest.mark.parametrize(
    ("framework", "name", "logged", "canonical"),
    [
        ("verl", "perf/max_memory_allocated_gb", 2.0, 2.0 * 2**30),
        ("verl", "perf/cpu_memory_used_gb", 0.5, 2.0**29),
        ("verl", "timing_per_token_ms/gen", 4.0, 0.004),
        ("verl", "timing_s/gen", 4.0, 4.0),
        ("trl", "scoring_time_ms", 250.0, 0.25),
        ("openrlhf", "train/dynamic_filtering_pass_rate", 40.0, 0.4),
        ("skyrl", "ray/node.0.gpu.3.util", 80.0, 0.8),
        ("skyrl", "ray/node.0.gpu.3.mem_used_gb", 1.0, 2.0**30),
        ("nemo_lens", "rl.generation.duration_ms", 1500.0, 1.5),
        ("nemo_lens", "gym.verify.duration_ms", 20.0, 0.02),
    ],
)
def test_values_become_the_registry_s_unit(framework: str, name: str, logged: float, canonical: float) -> None:
    """Gibibytes become bytes, milliseconds seconds, and per cent parts of one."""
    assert point(framework, name, logged)[2] == pytest.approx(canonical)


@pytest.mark.parametrize(
    ("in_verl", "in_trl"),
    [
        ("critic/rewards/mean", "reward"),
        ("critic/score/mean", "objective/scores"),
        ("response_length/mean", "completions/mean_length"),
        ("response_length/max", "completions/max_length"),
        ("response_length/clip_ratio", "completions/clipped_ratio"),
        ("gdpo/accuracy/std", "rewards/accuracy/std"),
        ("tool_call_counts/mean", "tools/call_frequency"),
        ("rollout_corr/rollout_is_max", "sampling/importance_sampling_ratio/max"),
        ("actor/pg_loss", "policy_loss"),
        ("actor/loss", "loss"),
        ("critic/vf_loss", "loss/value_avg"),
        ("actor/entropy", "entropy"),
        ("actor/ppo_kl", "policy/approxkl_avg"),
        ("actor/pg_clipfrac", "clip_ratio/region_mean"),
        ("critic/vf_clipfrac", "val/clipfrac_avg"),
        ("actor/grad_norm", "grad_norm"),
        ("actor/lr", "learning_rate"),
        ("training/epoch", "epoch"),
        ("timing_s/step", "step_time"),
        ("timing_s/update_weights", "weight_sync_time_s"),
    ],
)
def test_frameworks_meet_in_the_same_points(in_verl: str, in_trl: str) -> None:
    """The same number under verl's name and under TRL's is the same point."""
    assert point("verl", in_verl, 0.25) == point("trl", in_trl, 0.25)


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("verl", "actor/grad_norm"),
        ("trl", "grad_norm"),
        ("trl", "train/grad_norm"),
        ("openrlhf", "train/actor_grad_norm"),
        ("skyrl", "policy/grad_norm"),
        ("nemo_lens", "rl.grad_norm"),
    ],
)
def test_all_have_the_gradient_of_the_actor_in_one_place(framework: str, name: str) -> None:
    """One query shows it for all of them."""
    assert point(framework, name, 1.0) == ("rl.train.gradient.norm", {"rl.model.role": "actor"}, 1.0)


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("verl", "timing_s/gen"),
        ("trl", "profiling/Time taken: GRPOTrainer.vLLM.generate"),
        ("openrlhf", "train/timing/generation"),
        ("skyrl", "timing/generate"),
        ("nemo_lens", "rl.generation.duration_ms"),
    ],
)
def test_phases_have_one_name(framework: str, name: str) -> None:
    """Generation is `generate` whatever the framework calls it."""
    assert point(framework, name, 0.0) == ("rl.phase.time", {"rl.phase": "generate"}, 0.0)


def test_validation_keeps_the_data_source_whole() -> None:
    """The name of a data set may have a slash, as on the Hugging Face hub."""
    expected = {
        "rl.eval.suite": "eval",
        "rl.eval.task": "openai/gsm8k",
        "rl.eval.metric": "acc",
        "rl.eval.statistic": "best",
        "rl.eval.k": 8,
        "rl.statistic": "mean",
    }

    assert point("verl", "val-core/openai/gsm8k/acc/best@8/mean", 0.5) == ("rl.eval.score", expected, 0.5)


@pytest.mark.parametrize("framework", OTHERS)
def test_evaluation_is_apart_from_training(framework: str) -> None:
    """No name of an evaluation falls on the point of a training metric."""
    apart = {"rl.eval.suite", "rl.split"}
    readings = {name: dialect(framework).read(name) for name in captured(framework)}
    others = {(r.metric, r.attributes) for name, r in readings.items() if r and not name.startswith(("eval", "val-"))}
    evaluations = [r for name, r in readings.items() if r and name.startswith(("eval", "val-"))]

    assert all({key for key, _ in r.attributes} & apart or r.metric == "rl.phase.time" for r in evaluations)
    assert [r for r in evaluations if (r.metric, r.attributes) in others and r.metric != "rl.phase.time"] == []


def test_learning_rates_take_the_last_value_and_maxima_the_highest() -> None:
    """How ranks are reduced follows from the metric, or from the statistic in the name."""
    reduced = {
        name: reading.reduce
        for name in ("actor/lr", "critic/score/max", "timing_s/gen", "actor/pg_loss", "rollout_corr/training_ppl")
        if (reading := dialect("verl").read(name)) is not None
    }

    assert reduced == {
        "actor/lr": "last",
        "critic/score/max": "max",
        "timing_s/gen": "max",
        "actor/pg_loss": "",
        "rollout_corr/training_ppl": "geomean",
    }


def test_the_frameworks_can_be_recognised() -> None:
    """Each of them has modules by which it is detected."""
    assert set(OTHERS) <= set(DIALECTS)
