"""The cost of `run.weights` for 200 tensors on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.measuring import Contestant, compared, interleave
from benchmarks.recording import recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.tables import Table

_TENSORS = 200
_FIRST = "parameters, float32"


def measure() -> list[Table]:
    """Return the time of a call, by what holds the weights."""
    parameters = [(f"model.layers.{n}.self_attn.q_proj.weight", torch.randn(256, 256)) for n in range(_TENSORS)]
    forms: dict[str, Callable[[torch.Tensor], object]] = {
        _FIRST: torch.nn.Parameter,
        "parameters, bfloat16": lambda one: torch.nn.Parameter(one.bfloat16()),
        "views of a fused tensor": lambda one: torch.cat([one, one])[64:320],
        "half of the rows, with its place": lambda one: one[:128],
        "NumPy float32": lambda one: one.numpy().astype(np.float32),
    }
    with recording() as run:
        contestants = []
        for label, form in forms.items():
            tensors: list[tuple[object, ...]] = [(name, form(one)) for name, one in parameters]
            if "half" in label:
                tensors = [(*pair, (256, 256), (0, 0)) for pair in tensors]
            contestants.append(Contestant(label, lambda tensors=tensors: run.weights(12, tensors)))
        found = interleave(contestants, rounds=10, calls=20)
    note = "Target: p50 ≤ 1,000 µs. Four elements of each tensor are recorded, about 22 kB in all."
    return [compared(f"run.weights of {_TENSORS} tensors of 256 by 256", found, _FIRST, note, short="parameters")]
