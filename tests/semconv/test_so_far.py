"""The last value that each dialect keeps over several steps, of counts since the start."""

from __future__ import annotations

import pytest

from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.semconv.vocabulary import Vocabulary


def over_steps(dialect: str, name: str) -> str:
    """Return the statistic of a metric over several steps, which may be another one over ranks."""
    vocabulary = Vocabulary(dialect)
    reduction = Reductions({}, vocabulary.read, (), vocabulary.is_so_far).of(name)
    return reduction.over_steps or reduction.statistics[0]


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        ("areal", "global_step epoch"),
        ("maxent_grpo", "train/global_step train/epoch train/num_tokens"),
        ("nemo_rl", "rollout/committed_total rollout/data_retry_total/timeout rollout/train_steps ray/ray_step"),
        ("oat_drgrpo", "trainer/global_step misc/elapse misc/prompt_consumed train/learning_round"),
        ("openrlhf", "train/global_step"),
        ("prime_rl", "step progress/num_samples progress/total_tokens progress/total_rollouts"),
        ("rllib", "training_iteration num_env_steps_sampled_lifetime time_total_s counters/num_env_steps_trained"),
        ("rllm", "training/global_step batch/epoch async/weight_version async/total_syncs"),
        ("roll", "system/step system/global_step system/samples"),
        ("skyrl", "trainer/global_step trainer/epoch train/total_tokens_processed"),
        ("slime", "train/step rollout/step"),
        ("stable_baselines3", "time/total_timesteps time/iterations time/episodes train/n_updates time/time_elapsed"),
        ("trl", "train/epoch train/num_tokens episode tools/search/call_total train/num_input_tokens_seen"),
        ("trinity", "rollout/model_version"),
        ("tunix", "tunix.training.step"),
        ("verl", "training/global_step training/epoch fully_async/count/total_generated_samples"),
    ],
)
def test_counts_since_the_start_are_last_values(dialect: str, names: str) -> None:
    """The step, the epoch, tokens seen and the policy's version, in each dialect."""
    assert {name: over_steps(dialect, name) for name in names.split()} == dict.fromkeys(names.split(), "last")


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        ("nemo_rl", "train/total_num_tokens efficiency/total_waste_s"),
        ("rllib", "timers/training_iteration timers/training_step time_this_iter_s"),
        ("roll", "actor/total_samples train/student_train_step time/val_step"),
        ("stable_baselines3", "time/fps rollout/ep_len_mean"),
        ("trinity", "time/train_step time/wait_explore_step"),
        ("verl", "perf/total_num_tokens timing_s/step perf/time_per_step"),
    ],
)
def test_what_belongs_to_a_step_is_not(dialect: str, names: str) -> None:
    """Times and counts of one step, although their names are like those of counters."""
    assert "last" not in {over_steps(dialect, name) for name in names.split()}


@pytest.mark.parametrize("name", ["train/q_entropy_min", "train/clip_ratio/high_max", "train/reward_max"])
def test_maxent_averages_minima_and_maxima(name: str) -> None:
    """As its own log between two steps does."""
    assert over_steps("maxent_grpo", name) == "mean"
