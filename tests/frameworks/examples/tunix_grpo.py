"""Tunix: its GRPO learner on its own toy model, with otel-rl's options: `python tunix_grpo.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.interpreters import pxla
from tunix.rl import rl_cluster
from tunix.rl.grpo import grpo_learner
from tunix.rl.rollout import base_rollout
from tunix.tests import test_common as toy

if "plain" in sys.argv:
    from tunix.sft.metrics_logger import MetricsLoggerOptions
else:
    from otel_rl.frameworks.tunix import MetricsLoggerOptions


def index(completions, **_):
    return jnp.arange(len(completions))


def length(prompts, answer, **_):
    return jnp.asarray([len(text) / 10 for text in answer])


def keep(prompts, completions, advantages, rewards, **_):
    """Write down what Tunix gives to a function for metrics."""
    lists = [list(map(str, prompts)), list(completions), np.asarray(advantages).tolist(), np.asarray(rewards).tolist()]
    with Path("batches.jsonl").open("a") as file:
        print(json.dumps({"step": cluster.global_steps, "lists": lists}), file=file)
    return {}


def batches(count):
    texts = ["input string", "hello world", "My name", "hello there"]
    given = np.array(texts)
    return [{"prompts": np.roll(given, n)[:2], "answer": np.roll(given, n)[:2]} for n in range(count)]


vocabulary = toy.MockVocab()
actor, reference = (
    toy.ToyTransformer(config=toy.ModelConfig(vocab_size=vocabulary.GetPieceSize()), rngs=nnx.Rngs(0)) for _ in range(2)
)
mesh = pxla.thread_resources.env.physical_mesh
training = rl_cluster.RLTrainingConfig(
    actor_optimizer=optax.inject_hyperparams(optax.sgd)(1e-3),
    eval_every_n_steps=2,
    max_steps=4,
    metrics_logging_options=MetricsLoggerOptions(log_dir="own", project_name="p"),
)
cluster = rl_cluster.RLCluster(
    actor=actor,
    reference=reference,
    tokenizer=vocabulary,
    cluster_config=rl_cluster.ClusterConfig(
        role_to_mesh=dict.fromkeys((rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT), mesh),
        rollout_engine="vanilla",
        offload_to_cpu=False,
        training_config=training,
        rollout_config=base_rollout.RolloutConfig(
            max_tokens_to_generate=10, max_prompt_length=32, kv_cache_size=256, temperature=0.0
        ),
    ),
)
learner = grpo_learner.GRPOLearner(
    rl_cluster=cluster,
    algo_config=grpo_learner.GRPOConfig(num_generations=2),
    reward_fns=[index, length],
    metric_fns=[keep],
)
learner.train(batches(4), batches(1))
