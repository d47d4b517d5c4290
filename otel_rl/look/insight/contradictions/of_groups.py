"""Groups that cannot be: advantages that do not follow rewards, completions or prompts that are all equal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl.look.insight.contradictions.columns import AlignedRows, words_of
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.look.insight.contradictions.groups import rows_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.insight.contradictions.columns import Columns
    from otel_rl.look.insight.contradictions.groups import CompletionGroup

_LEAST = 20
"""Groups that a rule needs."""
_ESTIMATORS = ("algorithm", "algo", "algorithm_name", "adv_estimator", "advantage_estimator", "estimator", "advantage")
_SIZES = (
    "group_size",
    "num_generations",
    "n_samples_per_prompt",
    "samples_per_prompt",
    "rollouts_per_example",
)
_OFF, _MOSTLY, _NEARLY_ALL = 0.1, 0.5, 0.95
_UNRELATED, _OPPOSITE = 0.1, -0.5
"""Correlations of advantages and rewards of a group, below which they do not follow, and are against, each other."""


_ADVANTAGES = frozenset(("advantage", "advantages", "adv"))
_OFF_IN_STEPS = 0.02
_MOST_LOGGED = 8
_BASELINE = "Check the baseline: it has to be the mean reward of all completions of the same prompt."
_NO_TOKENS = "Check what counts the tokens: completions without any cannot earn different rewards."


def advantages_off_center(columns: Columns) -> Contradiction | None:
    """The advantages of a group have the mean 0 where GRPO or RLOO is recorded."""
    estimator, groups = _estimator(columns), _judged(columns)
    if not estimator:
        return None
    if len(groups) < _LEAST:
        return _off_center_in_groups(columns, estimator) or _off_center_in_steps(columns, estimator)
    off = [group for group in groups if abs(group.advantages.mean()) > _OFF * float(np.ptp(group.advantages))]
    if len(off) < _MOSTLY * len(groups):
        return None
    size = float(np.median([abs(group.advantages.mean()) for group in off]))
    of_first = all(np.allclose(group.advantages, group.rewards - group.rewards[0]) for group in groups)
    cause = "; each is the reward less that of the first completion" if of_first else ""
    return _of_groups(
        off,
        "advantages",
        f"Advantages of a group do not have the mean 0, as {estimator} makes them: it is ±{wording.number(size)}"
        f" in {wording.integer(len(off))} of {wording.count(len(groups), 'group')}{cause}.",
        _BASELINE,
    )


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read, without the main metrics."""
    return [name for name in names if words_of(name) & _ADVANTAGES or name.endswith("/count")]


def _off_center_in_groups(columns: Columns, estimator: str) -> Contradiction | None:
    """Judge the mean advantages of single groups, where these are logged."""
    names = [name for name in columns.names if words_of(name) & _ADVANTAGES and words_of(name) >= {"group", "mean"}]
    if len(names) < 2:
        return None
    rows = columns.rows(*names[:_MOST_LOGGED])
    means = np.abs(np.array(rows.values))
    if len(rows.steps) < _LEAST or not (means > _OFF).mean() >= _MOSTLY:
        return None
    return of_rows(
        names[:_MOST_LOGGED],
        rows,
        f"Advantages of a group do not have the mean 0, as {estimator} makes them: those of {names[0]} and others are"
        f" ±{wording.number(float(np.median(means)))}.",
        _BASELINE,
    )


def _off_center_in_steps(columns: Columns, estimator: str) -> Contradiction | None:
    """Judge the advantages of all completions of a step, where there is one for each reward."""
    for mean in (name for name in columns.names if words_of(name) >= {"mean"} and words_of(name) & _ADVANTAGES):
        base = mean.removesuffix("mean")
        count, deviation = f"{base}count", f"{base}std"
        rewards = [f"{name.removesuffix('mean')}count" for name in columns.of_topic("reward") if name.endswith("/mean")]
        if not {count, deviation, *rewards[:1]} <= {*columns.names} or not rewards:
            continue
        rows = columns.rows(mean, deviation, count, rewards[0])
        means, deviations, numbers, of_rewards = rows.values
        if len(means) < _LEAST or not np.array_equal(numbers, of_rewards):
            continue  # they are of tokens, or of a part
        off = np.abs(means) > _OFF_IN_STEPS * deviations
        if off.mean() >= _MOSTLY:
            return of_rows(
                (mean, deviation),
                AlignedRows(rows.steps, rows.values[:2]).where(off),
                f"Advantages do not have the mean 0, as {estimator} makes them: {mean} is"
                f" ±{wording.number(float(np.median(np.abs(means[off]))))} in {wording.integer(int(off.sum()))}"
                f" of {wording.count(len(means), 'step')}.",
                _BASELINE,
            )
    return None


def advantages_against_rewards(columns: Columns) -> Contradiction | None:
    """In a group, more reward is more advantage, where GRPO or RLOO is recorded; in no method it is mostly less."""
    groups = [group for group in _judged(columns) if group.has_signal]
    if len(groups) < _LEAST:
        return None
    rewards = np.concatenate([group.rewards - group.rewards.mean() for group in groups])
    advantages = np.concatenate([group.advantages - group.advantages.mean() for group in groups])
    power = float(np.sqrt((rewards @ rewards) * (advantages @ advantages)))
    follows = float(rewards @ advantages) / power if power > 0 else 0.0
    if follows > (_UNRELATED if _estimator(columns) else _OPPOSITE):
        return None
    how = "are opposite to" if follows <= _OPPOSITE else "do not follow"
    return _of_groups(
        groups,
        "advantages",
        f"Advantages {how} the rewards of their group: the correlation is {wording.number(follows)}"
        f" in {wording.count(len(groups), 'group')}.",
        "Check the sign, and that rewards and completions have one order: shuffling or padding may part them.",
    )


def equal_completions(columns: Columns) -> Contradiction | None:
    """Completions that are sampled differ in length or reward inside most groups, as those of different groups do."""
    groups = [group for group in columns.groups() if len(group.tokens) > 1 and group.tokens.min() > 0]
    lengths = {float(group.tokens[0]) for group in groups}
    equal = [group for group in groups if np.ptp(group.tokens) == 0 and not group.has_signal]
    limit = columns.number("max_completion_length", "max_response_length", "max_new_tokens", "max_tokens")
    if len(groups) < _LEAST or len(lengths) < 3 or len(equal) < _NEARLY_ALL * len(groups) or limit in lengths:
        return None
    return _of_groups(
        equal,
        "tokens",
        f"All completions of a group have one length and one reward, in {wording.integer(len(equal))}"
        f" of {wording.count(len(groups), 'group')}.",
        "Check the sampling of the engine: one seed for all requests, temperature 0, or a cache of answers.",
    )


def one_prompt(columns: Columns) -> Contradiction | None:
    """The groups of a step have different prompts."""
    of_step: dict[int, list[CompletionGroup]] = {}
    for group in columns.groups():
        of_step.setdefault(group.step, []).append(group)
    steps = [groups for groups in of_step.values() if len(groups) > 1 and groups[0].prompt]
    same = [groups for groups in steps if len({group.prompt for group in groups}) == 1]
    if len(steps) < _LEAST or len(same) < _NEARLY_ALL * len(steps):
        return None
    is_only = len({groups[0].prompt for groups in same}) == 1  # a run can train on one prompt alone
    found = _of_groups(
        [groups[0] for groups in same],
        "tokens",
        f"All {len(same[0])} groups of a step have the same prompt, in {wording.integer(len(same))}"
        f" of {wording.count(len(steps), 'step')}.",
        "Check what draws the prompts: it repeats one for the whole batch.",
    )
    return replace(found, severity="note" if is_only else "warning")


def no_tokens(columns: Columns) -> Contradiction | None:
    """Completions with different rewards have tokens, where their number is recorded."""
    groups = [group for group in columns.groups() if np.isfinite(group.tokens).all() and group.has_signal]
    if len(groups) >= _LEAST and not any(group.tokens.any() for group in groups):
        return _of_groups(
            groups,
            "tokens",
            f"Completions have 0 tokens in all {wording.count(len(groups), 'group')}, although their rewards differ.",
            _NO_TOKENS,
        )
    for name in columns.of_topic("completion_length"):
        series = columns.series(name)
        rewards = [columns.series(reward).values for reward in columns.of_topic("reward")]
        vary = bool(rewards) and len(rewards[0]) >= _LEAST and float(np.ptp(rewards[0])) > 0
        if vary and len(series.values) >= _LEAST and not series.values.any():
            return Contradiction(
                sentence=f"{name} is 0 in all {wording.count(len(series.values), 'step')}, although rewards differ.",
                advice=_NO_TOKENS,
                names=(name, *columns.of_topic("reward")),
                steps=(int(series.steps[0]), int(series.steps[-1])),
            )
    return None


def _estimator(columns: Columns) -> str:
    texts = columns.texts(*_ESTIMATORS).values()
    return next((text for text in texts if re.search(r"grpo|rloo", text, re.IGNORECASE)), "")


def _judged(columns: Columns) -> list[CompletionGroup]:
    """Return the whole groups whose advantages are known, and differ."""
    groups = [group for group in columns.groups() if len(group.advantages) > 1]
    size = columns.number(*_SIZES) or max((len(group.advantages) for group in groups), default=0)
    return [
        group
        for group in groups
        if len(group.advantages) == size and np.isfinite(group.advantages).all() and np.ptp(group.advantages) > 0
    ]


def _of_groups(groups: Sequence[CompletionGroup], column: str, sentence: str, advice: str) -> Contradiction:
    return Contradiction(
        sentence=sentence,
        advice=advice,
        names=(),
        steps=(groups[0].step, groups[-1].step),
        rows=rows_of(groups, column),
        subject=f"groups:{column}",
    )
