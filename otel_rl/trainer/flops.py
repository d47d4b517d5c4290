"""How many FLOPs a piece of training is, counted by torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def count_flops(work: Callable[[], object]) -> int:
    """Run `work` once and return the FLOPs of its matrix products, convolutions and attention.

    Counting slows every operator down, so it is done once, before or at the first step. Divided by the tokens
    that were trained on it is `init(flops={"per_token": …})`; logged each step as `rl.train.flops` it tells what the
    step itself was. Kernels that torch does not know, such as those of a rollout engine, are not counted
    (`torch.utils.flop_counter`).

    Raises:
        ImportError: There is no torch.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())
