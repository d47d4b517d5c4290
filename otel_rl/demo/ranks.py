"""Data parallelism: several trainer processes average their gradients over gloo."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeVar

    T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, and the number of ranks."""

    rank: int = 0
    world_size: int = 1

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this rank's part of the items, which are split over all ranks."""
        return items[self.rank :: self.world_size]

    def average_gradients(self, parameters: Iterable[Any]) -> None:
        """Replace the gradients of every rank with their mean over the ranks."""
        if self.world_size == 1:
            return
        gradients = [parameter.grad for parameter in parameters]
        together = torch.cat([gradient.flatten() for gradient in gradients]) / self.world_size
        dist.all_reduce(together)
        for gradient, mean in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def total(self, number: int) -> int:
        """Return the sum of a number over all ranks."""
        if self.world_size == 1:
            return number
        value = torch.tensor(number)
        dist.all_reduce(value)
        return int(value)


def join(rank: int, world_size: int) -> Ranks:
    """Connect to the other ranks at `MASTER_ADDR:MASTER_PORT`, and use this rank's share of torch's threads."""
    torch.set_num_threads(max(1, torch.get_num_threads() // world_size))
    if world_size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=timedelta(seconds=120))
    return Ranks(rank, world_size)


def leave() -> None:
    """Disconnect from the other ranks."""
    if dist.is_initialized():
        dist.destroy_process_group()
