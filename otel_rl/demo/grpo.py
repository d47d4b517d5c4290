"""The trainer: GRPO (arXiv 2402.03300), recorded with only the public surface of otel-rl."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F  # noqa: N812 - as torch's own documentation imports it

from otel_rl.demo import task
from otel_rl.demo.policy import Completions, Policy, generate, judge
from otel_rl.demo.task import COMPLETION_TOKENS, PAD, PROMPT_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import otel_rl
    from otel_rl.demo.options import Options
    from otel_rl.demo.ranks import Ranks


def train(run: otel_rl.Run, options: Options, ranks: Ranks) -> None:
    """Warm up, then train for `options.steps` steps of GRPO, recorded in `run`."""
    torch.manual_seed(options.seed)  # all ranks start with the same weights
    lessons, held_out = task.problems(options.seed)
    policy = Policy()
    with run.phase("warmup", updates=options.warmup_updates):  # a phase outside of any step
        warm_up(policy, lessons, options, ranks)

    reference = copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), weight_decay=0.0)
    chance = random.Random(f"prompts {options.seed} {ranks.rank}")
    generator = torch.Generator().manual_seed(1000 * options.seed + ranks.rank)
    num_tokens = 0

    for n in range(options.steps):
        with run.step(n):
            asked = chance.choices(lessons, k=options.prompts // ranks.world_size)
            problems = [problem for problem in asked for _ in range(options.group)]
            with run.phase("generate", sequences=len(problems)) as phase:
                batch = generate(policy, [problem.prompt for problem in problems], generator)
                tokens = int(batch.mask.sum())
                phase.set_attribute("tokens", tokens)
            with run.phase("reward"):
                scores = task.Scores.of(problems, batch.texts())
                rewards = torch.tensor(scores.rewards)
            with run.phase("ref_log_prob"), torch.no_grad():
                ref_log_probs, _ = judge(reference, batch)
            with run.phase("advantage"):
                grouped = rewards.view(-1, options.group)
                spread = grouped.std(dim=1, keepdim=True)
                advantages = ((grouped - grouped.mean(dim=1, keepdim=True)) / (spread + 1e-4)).flatten()
            with run.phase("update_actor", tokens=tokens):
                rate = options.learning_rate * (1 - 0.9 * n / options.steps)
                optimizer.param_groups[0]["lr"] = rate
                measured = []
                for index in minibatches(len(problems), options, generator):
                    terms = loss_terms(policy, batch.rows(index), ref_log_probs[index], advantages[index], options)
                    optimizer.zero_grad()
                    terms[0].backward()
                    ranks.average_gradients(policy.parameters())
                    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), options.max_grad_norm)
                    optimizer.step()
                    measured.append(torch.stack([*terms, norm]).detach())
                loss, kl, entropy, clipped, grad_norm = torch.stack(measured).mean(dim=0)

            num_tokens += ranks.total(tokens + PROMPT_TOKENS * len(problems))
            run.log(
                {
                    "loss": loss,  # tensors may be logged as they are
                    "reward": rewards.mean().item(),
                    "reward_std": spread.mean().item(),
                    "frac_reward_zero_std": (spread < 1e-6).float().mean().item(),
                    "rewards/exact_match/mean": scores.exact_match,
                    "rewards/format/mean": scores.well_formed,
                    "kl": kl,
                    "entropy": entropy,
                    "grad_norm": grad_norm,
                    "learning_rate": rate,
                    "num_tokens": num_tokens,
                    "completions/mean_length": batch.lengths.mean().item(),
                    "completions/clipped_ratio": batch.clipped.mean().item(),
                    "clip_ratio/region_mean": clipped,
                }
            )
            if ranks.rank == 0 and options.is_due(options.samples_every, n):
                run.completions(
                    [problem.prompt for problem in asked],
                    batch.texts(),
                    group_size=options.group,
                    rewards=scores.rewards,
                    reward_components={"exact_match": scores.exact, "format": scores.formatted},
                )
            if options.is_due(options.eval_every, n):
                with run.phase("eval"):
                    exam = ranks.share(held_out)
                    answers = generate(policy, [problem.prompt for problem in exam], generator).texts()
                    run.log({"eval/accuracy": task.Scores.of(exam, answers).exact_match})
            if ranks.rank == 0 and options.is_due(options.checkpoint_every, n):
                save_checkpoint(run, policy, n)


def warm_up(policy: Policy, lessons: Sequence[task.Problem], options: Options, ranks: Ranks) -> None:
    """Train on answers of which one in three is right, so that some completions of the first step earn a reward."""
    chance = random.Random(f"warm-up {options.seed} {ranks.rank}")
    rate = options.warmup_learning_rate
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate, weight_decay=0.01)
    for update in range(options.warmup_updates):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (options.warmup_updates - update) / 100)
        batch = chance.choices(lessons, k=options.warmup_batch // ranks.world_size)
        answers = [task.sloppy_answer(problem, chance).ljust(COMPLETION_TOKENS) for problem in batch]
        texts = [problem.prompt + answer for problem, answer in zip(batch, answers, strict=True)]
        tokens = torch.tensor([task.encode(text) for text in texts])
        logits = policy(tokens[:, :-1])[:, PROMPT_TOKENS - 1 :]
        loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, PROMPT_TOKENS:], ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        ranks.average_gradients(policy.parameters())
        optimizer.step()


def save_checkpoint(run: otel_rl.Run, policy: Policy, step: int) -> None:
    """Write the weights into the run directory."""
    path = run.dir / "checkpoints" / f"step-{step}.pt"
    with run.phase("checkpoint"):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        torch.save(policy.state_dict(), path)
    run.event("rl.checkpoint", path=str(path))


def minibatches(rows: int, options: Options, generator: Any) -> Iterator[Any]:
    """Yield the row numbers of each minibatch, in a new order for every pass."""
    for _ in range(options.epochs):
        yield from torch.randperm(rows, generator=generator).chunk(options.minibatches)


def loss_terms(policy: Policy, batch: Completions, reference: Any, advantages: Any, options: Options) -> list[Any]:
    """Return the loss, the KL divergence, the entropy and the share of clipped ratios, averaged over the tokens.

    The loss is the clipped policy gradient plus `options.beta` times the KL divergence from the reference, estimated as
    k3 (joschu.net/blog/kl-approx.html).

    Args:
        policy: The policy that is trained.
        batch: The completions of one minibatch.
        reference: Log-probabilities under the reference policy, like `batch.mask`.
        advantages: One for each completion.
        options: The clip range and `beta`.
    """
    log_probs, entropy = judge(policy, batch)
    advantage = advantages[:, None]
    ratio = (log_probs - batch.log_probs).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - options.clip, 1 + options.clip) * advantage)
    clipped = ((ratio < 1 - options.clip) & (advantage < 0)) | ((ratio > 1 + options.clip) & (advantage > 0))
    kl = (reference - log_probs).exp() - (reference - log_probs) - 1
    terms = (options.beta * kl - gain, kl, entropy, clipped.float())
    return [(term * batch.mask).sum() / batch.mask.sum() for term in terms]
