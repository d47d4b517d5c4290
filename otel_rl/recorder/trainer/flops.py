"""The number of FLOPs of a piece of training, counted by torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def count_flops(work: Callable[[], object]) -> int:
    """Run `work` once and return the FLOPs of its matrix products, convolutions and attention.

    Counting slows down every operator, so do it once, before or at the first step. Divide the result by the number of
    trained tokens for `init(flops={"per_token": …})`, or log it each step as `rl.train.flops`. Kernels that torch does
    not know, such as those of a rollout engine, are not counted (`torch.utils.flop_counter`).

    Args:
        work: Function that does the training.

    Raises:
        ImportError: torch is not installed.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
