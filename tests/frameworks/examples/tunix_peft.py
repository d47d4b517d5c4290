"""Tunix: its PeftTrainer on its own toy model, with otel-rl's options: `python tunix_peft.py`.

The options are those of `snippet.py`, if there is such a file, which is executed where they are imported.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tunix.sft import peft_trainer
from tunix.tests import test_common as toy

if (snippet := Path("snippet.py")).exists():
    exec(snippet.read_text())
else:
    from otel_rl.frameworks.tunix import MetricsLoggerOptions


def inputs(example):
    tokens = example.input_tokens
    return {
        "input_tokens": tokens,
        "input_mask": example.input_mask,
        "positions": jnp.arange(tokens.shape[1]),
        "attention_mask": jnp.ones_like(tokens),
    }


def train():
    tokens = np.arange(128).reshape((-1, 4, 16))
    data = [peft_trainer.TrainingInput(input_tokens=x, input_mask=jnp.ones(x.shape, jnp.int32)) for x in tokens] * 3
    trainer = peft_trainer.PeftTrainer(
        toy.ToyTransformer(config=toy.ModelConfig(), rngs=nnx.Rngs(0)),
        optax.inject_hyperparams(optax.sgd)(1e-3),
        peft_trainer.TrainingConfig(
            eval_every_n_steps=2,
            max_steps=6,
            metrics_logging_options=MetricsLoggerOptions(log_dir="own", project_name="p", flush_every_n_steps=20),
        ),
    )
    trainer.with_gen_model_input_fn(inputs).train(data, data[:1])


train()
