"""Sizes that contradict what is made of them: groups of one completion, steps without a token, rates, deviations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl.look.insight.contradictions.columns import Shape
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.look.insight.troubles import NONFINITE
from otel_rl.recorder.facts import wording
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.look.insight.contradictions.columns import Columns

_LEAST = 20
_GROUP_SIZES = (
    *("num_generations", "group_size", "n_samples_per_prompt", "num_samples_per_prompt", "samples_per_prompt"),
    *("num_return_sequences", "num_generations_per_prompt", "generations_per_prompt"),
)
_SPREAD = Shape(some=(frozenset(("reward", "rewards", "advantage", "advantages", "score")), frozenset(("std",))))
_RATE = Shape(
    some=(
        frozenset(("tok", "toks", "token", "tokens")),
        frozenset(("s", "sec", "second", "seconds", "throughput", "tps")),
    ),
    none=frozenset(("time", "times", "timing", "latency", "duration", "delay", "elapsed", "wait")),
)
_PER = re.compile(r"(?:^|[^a-z])per[^a-z]")
_PER_SECOND = re.compile(r"(?:^|[^a-z])per[^a-z]*s(?:ecs?|econds?)?(?![a-z])")
_VALID = Shape(
    some=(frozenset(("token", "tokens")), frozenset(("valid", "num", "n", "trained", "loss", "active", "response"))),
    none=frozenset(("prompt", "mean", "max", "min", "std", "per")),
)
_STAYS = 1.25
"""How much lengths and times of steps may change while a rate adds up what it counts, and how far it may be from
the sum."""
_NEARLY_ALL = 0.9
_FEW = 3
_FAR = 5.0
"""Times its usual value that a loss over no token is, at the least."""
_APART = 1.3
"""Ratio of two deviations of one reward that matters."""
_EQUAL = 0.03


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read, without the main metrics."""
    return [name for name in names if any(shape.fits(name) for shape in (_SPREAD, _RATE, _VALID))]


def groups_of_one(columns: Columns) -> Contradiction | None:
    """One completion has no deviation, so that a loss over advantages divided by that is not a number.

    Where PPO has one completion of each prompt, the deviation alone is not a number, and nothing is divided by it.
    """
    sizes = columns.numbers(*_GROUP_SIZES)
    if not sizes or any(size != 1 for size in sizes.values()):
        return None
    trained = _undefined(columns, (*columns.of_topic("loss"), *columns.of_topic("gradient_norm")))
    if not trained:
        return None
    undefined = list(dict.fromkeys((*trained, *_undefined(columns, columns.of_shape(_SPREAD)))))
    steps = columns.steps(undefined[0])
    verb = "is" if len(undefined) == 1 else "are"
    return Contradiction(
        sentence=(
            f"Groups of one completion have no deviation: {next(iter(sizes))} = 1 is recorded, and"
            f" {wording.names(undefined)} {verb} not a number in all steps."
        ),
        advice="Make two or more completions of each prompt, or do not divide by the deviation of a group.",
        names=tuple(undefined),
        steps=(int(steps[0]), int(steps[-1])),
        severity="bad",
        subject=NONFINITE,
    )


def _undefined(columns: Columns, names: Iterable[str]) -> list[str]:
    return [name for name in names if columns.is_undefined(name, _LEAST)]


def rate_that_adds_up(columns: Columns) -> Contradiction | None:
    """Tokens per second are those of a step, not the sum of all tokens so far over the time of one step."""
    lengths = columns.of_topic("completion_length")
    for name in dict.fromkeys((*columns.of_topic("tokens_per_second"), *_rates(columns))) if lengths else ():
        rows = columns.rows(name, lengths[0], STEP_TIME)
        rate, length, seconds = rows.values
        if len(rows.steps) < _LEAST or not all((values > 0).all() for values in rows.values):
            continue
        # It is in proportion to the sum from its first row on: one that grows with the batches starts far above.
        sums = rate * seconds / np.cumsum(length)
        near = np.abs(np.log(sums / np.median(sums))) < np.log(_STAYS)
        if near.mean() < _NEARLY_ALL or not 1 / _STAYS < _growth(length / seconds) < _STAYS:
            continue
        found = of_rows(
            (name, lengths[0], STEP_TIME),
            rows,
            f"{name} rises {wording.number(float(rate[0]))} → {wording.number(float(rate[-1]))}, although lengths and"
            " times of steps stay the same: it adds up what it counts.",
            "Check what it is divided by: tokens since the start need the time since the start.",
        )
        return replace(found, sure="likely")
    return None


def _rates(columns: Columns) -> Iterable[str]:
    """Return the names of tokens per second, without those of seconds per token."""
    return (
        name for name in columns.of_shape(_RATE) if not _PER.search(name.lower()) or _PER_SECOND.search(name.lower())
    )


def loss_without_tokens(columns: Columns) -> Contradiction | None:
    """A loss over no token is not one: where it is far from the others, it is divided by nothing."""
    losses = columns.of_topic("loss")
    for name in columns.of_shape(_VALID) if losses else ():
        rows = columns.rows(name, losses[0])
        tokens, loss = rows.values
        empty = tokens == 0
        if not _FEW <= empty.sum() < len(tokens) / 2:
            continue
        there, usual = float(np.median(np.abs(loss[empty]))), float(np.median(np.abs(loss[~empty])))
        if there <= _FAR * usual:
            continue
        found = of_rows(
            (name, losses[0]),
            rows.where(empty),
            f"{name} is 0 in {wording.count(int(empty.sum()), 'step')}, and {losses[0]} is {wording.number(there)}"
            f" there ({wording.number(usual)} otherwise): no token is trained on.",
            "Leave out batches without a token; check the mask, and what is filtered or cut.",
        )
        return replace(found, covers=(losses[0], *columns.of_topic("kl"), *columns.of_topic("gradient_norm")))
    return None


def two_deviations(columns: Columns) -> Contradiction | None:
    """The only part of a reward has its deviation, unless one is of the batch and the other of groups."""
    parts, rewards = columns.of_topic("reward_components"), columns.of_topic("reward")
    if len(parts) != 1 or not rewards or not parts[0].endswith(("/mean", "_mean")):
        return None
    of_part = f"{parts[0][:-4]}std"
    for of_whole in (f"{rewards[0]}_std", f"{rewards[0]}/std", f"{rewards[0].removesuffix('/mean')}/std"):
        if of_whole == of_part or not {of_whole, of_part} <= {*columns.names}:
            continue
        rows = columns.rows(of_whole, of_part, rewards[0], parts[0])
        whole, part, reward, mean = rows.values
        if len(rows.steps) < _LEAST or np.median(whole) <= 0 or np.median(part) <= 0:
            continue
        ratio = float(np.median(whole) / np.median(part))
        if abs(np.median(reward) - np.median(mean)) > _EQUAL * abs(np.median(mean)) or 1 / _APART < ratio < _APART:
            continue
        found = of_rows(
            (of_whole, of_part),
            rows._replace(values=(whole, part)),
            f"{of_whole} is {wording.number(float(np.median(whole)))} and {of_part}"
            f" {wording.number(float(np.median(part)))}, although {parts[0]} is all of the reward: one is of the batch,"
            " the other within groups.",
            "Check which of them the advantages are divided by.",
            "note",
        )
        return replace(found, sure="likely")
    return None


def _growth(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    fifth = max(1, len(values) // 5)
    return float(np.median(values[-fifth:]) / np.median(values[:fifth]))
