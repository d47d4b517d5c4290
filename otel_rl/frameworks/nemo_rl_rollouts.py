"""NeMo-RL: the trajectories that it writes to a file after each step."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.rollouts import ScoredRollout, mean_of, record, run_with_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRAINED = re.compile(r"train_data_step(\d+)\.jsonl")
"""The file of a step, and the number of the step."""
_COLUMNS = {
    *("content", "token_ids", "input_lengths", "token_loss_mask", "sample_loss_mask", "advantages"),
    *("generation_logprobs", "prev_logprobs", "rewards"),
}
"""The columns of the file; evaluations and other algorithms write less."""


def record_file(to_log: Mapping[str, Any], filename: str, **_: object) -> None:
    """Record the trajectories of a file, if a step trained on them and texts may leave the process."""
    match, run = _TRAINED.fullmatch(filename), run_with_texts()
    if match is not None and run is not None and to_log.keys() >= _COLUMNS:
        lines = [_rollout({name: to_log[name][n] for name in to_log}) for n in range(len(to_log["token_ids"]))]
        record(run, int(match[1]), [line for line in lines if line is not None])


def _rollout(line: Mapping[str, Any]) -> ScoredRollout | None:
    """Return a trajectory; `None` if the policy wrote nothing. Each run of the mask is one of its messages."""
    own = line["token_loss_mask"][: line["input_lengths"]]
    if not any(own):
        return None
    since = slice(own.index(1), line["input_lengths"])
    authors = ["assistant" if is_own else "tool" for is_own, _ in groupby(own[since])]
    texts = [line["content"]] if isinstance(line["content"], str) else line["content"]
    before, after = texts[: -len(authors)], texts[-len(authors) :]
    mask = [bool(is_trained and line["sample_loss_mask"]) for is_trained in own[since]]
    return ScoredRollout(
        prompt="\n".join(before),
        completion=[{"role": author, "content": text} for author, text in zip(authors, after, strict=False)],
        group="",
        tokens=line["token_ids"][since],
        mask=mask,
        logprobs=line["generation_logprobs"][since],
        trainer_logprobs=line["prev_logprobs"][since],
        reward=line.get("filtered_rewards", line["rewards"]),
        advantage=mean_of(line["advantages"][since], mask),
    )
