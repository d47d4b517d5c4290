"""Values that hooks get for a framework's trackers: numbers as these chart them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from otel_rl.frameworks.charted import element
from otel_rl.frameworks.nemo_rl import Logger
from otel_rl.frameworks.recording import Recordings
from otel_rl.recorder.journal.records import Observed
from otel_rl.recorder.trainer.run import Run
from tests.real_parts import needs
from tests.recorder.trainer.reading import RecordsOf, logged

_ONE = [
    np.array([1.5]),
    np.array([[1.5]]),
    np.array(1.5),
    np.array([3], dtype=np.uint8),
    np.array([True]),
    torch.tensor([1.5], requires_grad=True),
    torch.tensor([[1.5]], dtype=torch.bfloat16),
    torch.tensor([[3]]),
]
"""Arrays and tensors of one element, of each kind that a trainer holds."""


@pytest.mark.parametrize("value", _ONE, ids=repr)
def test_an_array_of_one_element_is_a_number(value: torch.Tensor, recording: Run, records_of: RecordsOf) -> None:
    """It keeps its name in all hooks, also in a nested mapping, which Accelerate and verl pass on."""
    recordings = Recordings()
    recordings.begin(self := object())
    recordings.log(self, {"x": value, "actor": {"kl": value}}, 3)

    assert logged(records_of(recording)) == [(3, {"x": value.item(), "actor/kl": value.item()})]


@pytest.mark.parametrize("value", _ONE, ids=repr)
def test_in_the_logger_of_nemo_rl(value: object, recording: Run, records_of: RecordsOf) -> None:
    """Arrays of one element are numbers there too, as in its TensorBoard; its histograms are not."""
    logger = Logger({})
    logger.log_metrics({"loss": value}, 1, prefix="train")
    logger.log_histogram(np.array([1.5]), 1, "ratio")  # type: ignore[arg-type]
    records = records_of(recording)

    assert [[*values] for _, values in logged(records)] == [["train/loss"]]
    assert [[*record.values] for record in records if isinstance(record, Observed)] == [["ratio"]]


@needs("jax")
def test_an_array_of_jax(recording: Run, records_of: RecordsOf) -> None:
    """Tunix passes them to the listeners of JAX."""
    import jax.numpy as jnp

    from otel_rl.frameworks.metrax import LoggingBackend

    backend = LoggingBackend()
    backend.log_scalar("actor/kl", jnp.asarray([1.5]), step=2)
    backend.log_scalar("actor/length", np.array([3]), step=2)
    backend.close()

    assert logged(records_of(recording)) == [(2, {"actor/kl": 1.5}), (2, {"actor/length": 3})]


def test_observations_stay_observations(recording: Run, records_of: RecordsOf) -> None:
    """Lists, and arrays of several elements or none: trackers draw no number for them."""
    recordings = Recordings()
    recordings.begin(self := object())
    recordings.log(self, {"a": [1.5], "b": np.array([1.0, 2.0]), "c": torch.ones(0), "text": "1", "none": None}, 3)
    records = records_of(recording)

    assert [[*record.values] for record in records if isinstance(record, Observed)] == [["a", "b"]]
    assert logged(records) == []


def test_a_tensor_of_several_ranks_is_left_alone() -> None:
    """To read a part of a DTensor may be a collective, which would hang."""
    sharded = SimpleNamespace(shape=(1,), placements=("Shard(0)",), reshape=lambda shape: pytest.fail("a collective"))

    assert element(sharded) is sharded
