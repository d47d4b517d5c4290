"""Terms of the loss and of the reward that cannot be as their coefficients, weights and signs say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.look.insight.contradictions.contradiction import Contradiction, of_rows
from otel_rl.look.insight.course import course_of
from otel_rl.look.insight.troubles import ENGINE_GAP
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_rl.look.insight.contradictions.columns import Columns
    from otel_rl.look.insight.series import Series
    from otel_rl.semconv.main_metrics import Topic

_LEAST = 20
_NEARLY_ALL = 0.95
_OF_KL = ("beta", "kl_coef", "kl_coeff", "kl_loss_coef", "kl_loss_coeff", "init_kl_coef", "kl_penalty_coef", "kl_beta")
_OF_ENTROPY = ("entropy_coef", "entropy_coeff", "ent_coef", "entropy_loss_coef", "entropy_bonus")
_COEFFICIENTS: dict[Topic, tuple[str, ...]] = {"kl": _OF_KL, "entropy": _OF_ENTROPY}
_COEFFICIENT = re.compile(r"_coef(?:f|ficient)?$")
_TERM = re.compile(r"(?:^|/)(?:loss_\w+|\w+_(?:loss|penalty|bonus))$", re.IGNORECASE)
_ALIASES = {
    "vf": ("vf", "value", "critic"),
    "value": ("value", "vf", "critic"),
    "ent": ("entropy",),
    "kl_loss": ("kl",),
}
"""Names of terms by those of their coefficients, where they differ."""
_NOT_NEGATIVE = re.compile(r"abs|mse|k2|k3|low_var|full", re.IGNORECASE)
"""Estimators of a KL divergence whose values are not below 0."""
_SHAPES_OF_KL = re.compile(r"penalty|approx|ppo|old", re.IGNORECASE)
"""Names of what is not the divergence from the reference, or has its sign turned."""
_PENALTIES = re.compile(r"penal|kl|cost|overlong|repetit|bonus|negative|violation", re.IGNORECASE)
_AROUND = re.compile(r"^(?:train/)?rewards?[/_](?:(?:parts?|components?)/)?|_rewards?$")
"""The parts of the name of a reward's part that are not its label."""
_GAP = 0.05
_GAPS: tuple[Topic, ...] = ("log_prob_difference", "sampler_kl", "probability_difference")
_ROUNDING = 0.01


def wanted(names: Iterable[str]) -> list[str]:
    """Return the names that these rules read, without the main metrics."""
    return [name for name in names if _TERM.search(name)]


def constant_term(columns: Columns) -> Contradiction | None:
    """A term with a coefficient varies from step to step."""
    for names, known in _terms(columns):
        for name in names:
            values = columns.series(name).values
            if len(values) < _LEAST or np.ptp(values) > 0 or _is_of_old(columns, name):
                continue
            parameter, value = known
            return of_rows(
                (name,),
                columns.rows(name),
                f"{name} is exactly {wording.number(float(values[0]))} in all {wording.count(len(values), 'step')},"
                f" although {parameter} = {wording.number(value)}.",
                "Check that the term is computed, and from the current policy and a reference of its own.",
            )
    return None


def _terms(columns: Columns) -> Iterator[tuple[tuple[str, ...], tuple[str, float]]]:
    """Yield names of terms, with the coefficient, which is not 0."""
    for topic, coefficients in _COEFFICIENTS.items():
        known = [(name, value) for name, value in columns.numbers(*coefficients).items() if value]
        yield from ((columns.of_topic(topic), coefficient) for coefficient in known[:1])
    parts = {*columns.of_topic("reward_components")}
    for parameter, value in columns.coefficients().items():
        label = _COEFFICIENT.sub("", parameter.rpartition(".")[2].lower())
        labels = _ALIASES.get(label, (label,))
        terms = {term for one in labels for term in (f"{one}_loss", f"loss_{one}", f"{one}_penalty", f"{one}_bonus")}
        named = tuple(name for name in columns.names if name.rpartition("/")[2].lower() in terms and name not in parts)
        if value and named:
            yield named, (parameter, value)


def negative_divergence(columns: Columns) -> Contradiction | None:
    """A KL divergence from the reference is not below 0 on average."""
    for name in columns.of_topic("kl"):
        rows = columns.rows(name)
        (values,) = rows.values
        kinds = columns.texts("kl_penalty", "kl_estimator", "kl_loss_type", "kl_type")
        declared = next(((key, text) for key, text in kinds.items() if _NOT_NEGATIVE.search(text)), None)
        below = values < 0
        if len(values) < _LEAST or below.mean() < _NEARLY_ALL or (declared is None and _is_of_old(columns, name)):
            continue
        why = f", although {declared[0]} = {declared[1]}" if declared else ""
        sampling = f" ({sampled} is recorded)" if (sampled := _sampling(columns)) else ""
        return of_rows(
            (name,),
            rows.where(below),
            f"{name} is negative in {wording.integer(int(below.sum()))} of {wording.count(len(values), 'step')}"
            f" ({wording.number(float(np.median(values)))}){why}; a KL divergence is not.",
            "Check the order of the two log-probabilities, and that completions are sampled from the policy as it is"
            f" trained, without top_p and top_k{sampling}.",
        )
    return None


def negative_coefficient(columns: Columns) -> Contradiction | None:
    """A KL coefficient below 0 rewards distance from the reference, and the KL grows."""
    negative = {name: value for name, value in columns.numbers(*_OF_KL).items() if value < 0}
    for name in columns.of_topic("kl"):
        series = columns.series(name)
        if negative and len(series.values) >= _LEAST and course_of(series).rises:
            parameter, value = next(iter(negative.items()))
            ends = course_of(series)
            return of_rows(
                (name,),
                columns.rows(name),
                f"{name} rises {wording.number(ends.start)} → {wording.number(ends.end)}:"
                f" {parameter} = {wording.number(value)} is negative, and rewards distance from the reference.",
                f"Set {parameter} above 0; resume from a checkpoint of the start.",
            )
    return None


def silent_source(columns: Columns) -> Contradiction | None:
    """Of several parts or sources of a reward, none is exactly 0 in each step while all others vary."""
    parts = {name: columns.series(name).values for name in columns.of_topic("reward_components")}
    silent = [name for name, values in parts.items() if len(values) >= 2 * _LEAST and not values.any()]
    vary = [name for name, values in parts.items() if len(values) and np.ptp(values) > 0]
    if len(silent) != 1 or len(vary) < 1 or len(vary) + 1 < len(parts) or _PENALTIES.search(silent[0]):
        return None
    found = of_rows(
        (silent[0], vary[0]),
        columns.rows(silent[0], vary[0]),
        f"{silent[0]} is exactly 0 in all {wording.count(len(parts[silent[0]]), 'step')},"
        f" while {wording.names(vary)} varies.",
        "Read samples: no completion earns it, or its check never matches the form of the answers.",
        "note",
    )
    return replace(found, sure="likely")


def parts_are_not_the_sum(columns: Columns) -> Contradiction | None:
    """The reward is the sum of its parts times their recorded weights."""
    parts, rewards = columns.of_topic("reward_components"), columns.of_topic("reward")
    weights = {part: weight for part in parts if (weight := _weight(columns, part)) is not None}
    if not rewards or len(parts) < 2 or len(weights) != len(parts):
        return None
    rows = columns.rows(rewards[0], *parts)
    total, *values = rows.values
    expected = sum(weights[part] * column for part, column in zip(parts, values, strict=True))
    wrong = np.abs(total - expected) > _ROUNDING * np.maximum(np.abs(total), np.abs(expected)) + 1e-6
    if len(total) < _LEAST or wrong.mean() < _NEARLY_ALL:
        return None
    away = rows.where(wrong)
    text = " + ".join(f"{wording.number(weights[part])} · {part}" for part in parts)
    return of_rows(
        (rewards[0], *parts),
        away,
        f"{rewards[0]} is not {text} in {wording.count(len(away.steps), 'step')}:"
        f" it is {wording.number(float(np.median(total)))}, their sum is {wording.number(float(np.median(expected)))}.",
        "Check where the weights are applied: not at all, twice, or with the order of the parts changed.",
    )


def sampling_gap(columns: Columns) -> Contradiction | None:
    """Engine and trainer differ from the start where the engine's sampling is not that of the policy."""
    changed = _sampling(columns)
    for topic in _GAPS:
        for name in columns.of_topic(topic):
            series = columns.series(name)
            if not changed or len(series.values) < _LEAST or abs(_start(series)) < _GAP:
                continue
            found = of_rows(
                (name,),
                columns.rows(name),
                f"Log-probabilities of engine and trainer differ from the first step on ({name}"
                f" {wording.number(_start(series))}), and {changed} is recorded.",
                "Sampling parameters of the engine change its probabilities: apply the same to the logits of the"
                " trainer, or have the engine return log-probabilities from before sampling.",
            )
            return replace(found, sure="likely", subject=ENGINE_GAP, covers=(name,))
    return None


def _sampling(columns: Columns) -> str:
    """Return the parameters by which the engine samples from something else than the policy, in words."""
    changed = [
        *((name, value) for name, value in columns.numbers("temperature").items() if value not in (0.0, 1.0)),
        *((name, value) for name, value in columns.numbers("top_p", "min_p").items() if value not in (0.0, 1.0)),
        *((name, value) for name, value in columns.numbers("top_k").items() if value > 0),
    ]
    return wording.names([f"{name} = {wording.number(value)}" for name, value in changed])


def _start(series: Series) -> float:
    return float(np.median(series.values[:_LEAST]))


def _is_of_old(columns: Columns, name: str) -> bool:
    """Return whether a KL is that from the policy before the update, or a penalty."""
    reading = columns.main.vocabulary.read_row(name)
    is_old = reading is not None and dict(reading.attributes).get(semconv.KL_FROM) == "old"
    return is_old or _SHAPES_OF_KL.search(name) is not None


def _weight(columns: Columns, part: str) -> float | None:
    """Return the recorded weight of a part of the reward, by its name."""
    label = _AROUND.sub("", part.removesuffix("/mean")).lower()
    names = (f"{label}_weight", f"weight_{label}", f"{label}_reward_weight", f"{label}_coef", f"{label}_coeff")
    if (weight := columns.number(*names)) is not None:
        return weight
    of_group = columns.numbers(label)
    return next((value for name, value in of_group.items() if re.search(r"weights?\.[^.]+$", name)), None)
