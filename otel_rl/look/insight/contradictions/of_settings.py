"""Values that are not what the parameters say: a learning rate, a limit of length, updates that move nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl.look.insight.contradictions.columns import Shape, words_of
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.look.insight.contradictions.columns import Columns

_LEAST, _MOSTLY, _NEARLY_ALL = 20, 0.5, 0.95
_RATES = ("learning_rate", "lr", "actor_lr", "policy_lr", "actor_learning_rate", "max_lr", "peak_lr")
_MORE = 1.1
"""How many times as large a value is as its parameter, at the least."""
_OF_RATE = Shape(some=(frozenset(("lr", "learning_rate")),), none=frozenset(("critic", "embedding", "lora", "min")))
_OF_LIMIT = ("max_completion_length", "max_response_length", "max_new_tokens", "generate_max_len")
_LONGEST = Shape(
    every=frozenset(("max",)),
    some=(frozenset(("length", "len")), frozenset(("completion", "completions", "response", "responses"))),
    none=frozenset(("prompt", "turn", "turns", "limit", "total")),
)
_TOOLS = frozenset(("turn", "turns", "tool", "tools", "agent", "env"))
"""Words of names where a completion has parts that the policy did not generate."""
_MOVES = Shape(every=frozenset(("kl",)), some=(frozenset(("ppo", "approx", "old")),))
_EPOCHS = ("ppo_epochs", "num_ppo_epochs", "n_epochs", "num_iterations", "mini_batches", "num_mini_batches")
_HELD_OUT = re.compile(r"(?:^|[./_])(?:val|eval|validation|test)(?:[._/]|$)")


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read, without the main metrics."""
    return [
        name
        for name in names
        if any(shape.fits(name) for shape in (_OF_RATE, _LONGEST, _MOVES)) or "learning_rate" in name
    ]


def rate_above_its_parameter(columns: Columns) -> Contradiction | None:
    """No schedule goes above the learning rate that was set."""
    known = columns.numbers(*_RATES)
    for name in columns.names:
        if not known or not (_OF_RATE.fits(name) or name.rpartition("/")[2] == "learning_rate"):
            continue
        rows, (parameter, value) = columns.rows(name), max(known.items(), key=lambda item: item[1])
        above = rows.values[0] > _MORE * value
        if value > 0 and int(above.sum()) >= _LEAST:
            return of_rows(
                (name,),
                rows.where(above),
                f"{name} is {wording.number(float(rows.values[0].max()))}, above {parameter} = {wording.number(value)},"
                f" in {wording.integer(int(above.sum()))} of {wording.count(len(above), 'step')}.",
                "Check which of them the optimizer has: a scheduler, a group of parameters or a default may win.",
            )
    return None


def longer_than_the_limit(columns: Columns) -> Contradiction | None:
    """No completion is longer than the limit, unless tools or users write parts of it."""
    if any(words_of(name) & _TOOLS for name in columns.names):
        return None
    limits = columns.numbers(*_OF_LIMIT)
    for name in columns.of_shape(_LONGEST):
        rows = columns.rows(name)
        if not limits or len(rows.steps) < _LEAST:
            continue
        parameter, limit = max(limits.items(), key=lambda item: item[1])
        above = rows.values[0] > _MORE * limit
        if above.mean() >= _MOSTLY:
            return of_rows(
                (name,),
                rows.where(above),
                f"{name} is {wording.number(float(np.median(rows.values[0])))}, above {parameter} ="
                f" {wording.number(limit)}, in {wording.integer(int(above.sum()))} of"
                f" {wording.count(len(above), 'step')}.",
                "Check that the engine gets the limit, and whether prompts are counted.",
            )
    return None


def updates_that_move_nothing(columns: Columns) -> Contradiction | None:
    """Of several updates for the same samples, the later ones differ from the policy that sampled them."""
    several = {name: value for name, value in columns.numbers(*_EPOCHS).items() if value > 1}
    for name in columns.of_shape(_MOVES):
        values = columns.series(name).values
        if several and len(values) >= _LEAST and not values.any():
            parameter, value = next(iter(several.items()))
            return of_rows(
                (name,),
                columns.rows(name),
                f"{name} is exactly 0 in all {wording.count(len(values), 'step')}, although {parameter} ="
                f" {wording.number(value)}: from the second update on, the policy is not that of the samples.",
                "Check that the old log-probabilities are kept, and not computed again before each update.",
            )
    return None


def held_out_is_training(columns: Columns) -> Contradiction | None:
    """An evaluation does not have the values of the training to the bit."""
    rewards = columns.of_topic("reward")
    for name in columns.of_topic("evaluation"):
        for reward in rewards:
            if reward == name or not _HELD_OUT.search(name) or _HELD_OUT.search(reward):
                continue
            rows = columns.rows(name, reward)
            held_out, trained = rows.values
            if len(trained) >= _LEAST and np.ptp(trained) > 0 and (held_out == trained).mean() >= _NEARLY_ALL:
                found = of_rows(
                    (name, reward),
                    rows,
                    f"{name} equals {reward} to the bit in {wording.count(len(trained), 'step')}.",
                    "Check what the evaluation runs: it has the values of the training batch, not those of other data.",
                )
                return replace(found, covers=())
    return None
