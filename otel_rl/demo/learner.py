"""The learner: the policy with its optimiser, and the clipped update on one step's completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from otel_rl.demo.generation import judge
from otel_rl.demo.objective import policy_loss

if TYPE_CHECKING:
    from otel_rl.demo.generation import Completions
    from otel_rl.demo.model import Policy
    from otel_rl.demo.options import Options
    from otel_rl.demo.ranks import Ranks


@dataclass(frozen=True)
class Update:
    """What an update did, averaged over its minibatches."""

    loss: Any  # a torch scalar: a recorder must take what trainers hold
    kl: float
    entropy: float
    clipped: float
    grad_norm: float
    learning_rate: float


class Learner:
    """Holds what changes while training."""

    def __init__(self, policy: Policy, options: Options, ranks: Ranks) -> None:
        self.policy, self.options, self.ranks = policy, options, ranks
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=options.learning_rate, weight_decay=0.0)

    def update(self, batch: Completions, reference: Any, advantages: Any, *, step: int, generator: Any) -> Update:
        """A few passes over the completions in shuffled minibatches."""
        options = self.options
        rate = options.learning_rate * (1 - 0.9 * step / options.steps)
        self.optimizer.param_groups[0]["lr"] = rate
        measured = []
        for _ in range(options.epochs):
            order = torch.randperm(len(advantages), generator=generator)
            for index in order.chunk(options.minibatches):
                measured.append(self._descend(batch.rows(index), reference[index], advantages[index]))
        loss, kl, entropy, clipped, grad_norm = torch.stack(measured).mean(dim=0)
        return Update(loss, float(kl), float(entropy), float(clipped), float(grad_norm), rate)

    def _descend(self, batch: Completions, reference: Any, advantages: Any) -> Any:
        """One step of the optimiser; the five numbers of an `Update`."""
        log_probs, entropy = judge(self.policy, batch)
        loss = policy_loss(
            log_probs=log_probs,
            old=batch.log_probs,
            reference=reference,
            entropy=entropy,
            advantages=advantages,
            mask=batch.mask,
            clip=self.options.clip,
            beta=self.options.beta,
        )
        self.optimizer.zero_grad()
        loss.total.backward()
        self.ranks.average_gradients(self.policy.parameters())
        grad_norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.options.max_grad_norm)
        self.optimizer.step()
        return torch.stack([loss.total.detach(), loss.kl, loss.entropy, loss.clipped, grad_norm])
