"""The trainer: GRPO as a paper tells it, instrumented with nothing but the public surface of otel-rl."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING

import torch

from otel_rl.demo import task
from otel_rl.demo.generation import generate, judge
from otel_rl.demo.learner import Learner
from otel_rl.demo.model import Policy
from otel_rl.demo.objective import group_advantages, zero_std_share
from otel_rl.demo.warmup import warm_up

if TYPE_CHECKING:
    import otel_rl
    from otel_rl.demo.options import Options
    from otel_rl.demo.ranks import Ranks


def train(run: otel_rl.Run, options: Options, ranks: Ranks) -> None:
    """Warm up, then `options.steps` steps of GRPO, recorded in `run`."""
    torch.manual_seed(options.seed)  # all ranks start with the same weights
    lessons, held_out = task.problems(options.seed)
    policy = Policy()
    with run.phase("warmup", updates=options.warmup_updates):  # supervised, and before the first step
        warm_up(policy, lessons, options, ranks)

    reference = copy.deepcopy(policy)
    learner = Learner(policy, options, ranks)
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
                reference_log_probs, _ = judge(reference, batch)
            with run.phase("advantage"):
                advantages = group_advantages(rewards, options.group)
            with run.phase("update_actor", tokens=tokens):
                update = learner.update(batch, reference_log_probs, advantages, step=n, generator=generator)

            num_tokens += ranks.total(tokens + task.PROMPT_TOKENS * len(problems))
            run.log(
                {
                    "loss": update.loss,
                    "reward": rewards.mean().item(),
                    "reward_std": rewards.view(-1, options.group).std(dim=1).mean().item(),
                    "frac_reward_zero_std": zero_std_share(rewards, options.group).item(),
                    "rewards/exact_match/mean": scores.exact_match,
                    "rewards/format/mean": scores.well_formed,
                    "kl": update.kl,
                    "entropy": update.entropy,
                    "grad_norm": update.grad_norm,
                    "learning_rate": update.learning_rate,
                    "num_tokens": num_tokens,
                    "completions/mean_length": batch.lengths.mean().item(),
                    "completions/clipped_ratio": batch.clipped.mean().item(),
                    "clip_ratio/region_mean": update.clipped,
                }
            )
            if options.every(options.eval_every, n):
                with run.phase("eval"):
                    exam = ranks.share(held_out)
                    answers = generate(policy, [problem.prompt for problem in exam], generator).texts()
                    run.log({"eval/accuracy": task.Scores.of(exam, answers).exact_match})
            if ranks.rank == 0 and options.every(options.checkpoint_every, n):
                with run.phase("checkpoint"):
                    path = run.dir / "checkpoints" / f"step-{n}.pt"
                    path.parent.mkdir(exist_ok=True)
                    torch.save(policy.state_dict(), path)
                run.event("rl.checkpoint", path=str(path))
