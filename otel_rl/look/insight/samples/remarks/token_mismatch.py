"""Engine and trainer, token by token: tokens that rounding does not explain, and what each age is still worth.

Kernels and number formats move the probability of a token a little. A token to which the engine gave a probability of
0.5 or more, and to which the trainer with the same version of the weights gives less than e⁻² of that, is another
policy: other weights, another template, another temperature.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.look.insight.samples.remarks.remark import Remark, of_trajectory, short, to_read
from otel_rl.look.insight.samples.trajectories import each_of, one_of
from otel_rl.look.insight.troubles import ENGINE_GAP
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from otel_rl.look.reader.runs import RunReader

PROBABLE, NATS = 0.5, 2.0
"""Probability in the engine from which on, and nats by which, a token is never noise of kernels."""
_LEAST_TOKENS = 1_000
"""Tokens of an age, for its effective sample size."""
_LITTLE = 0.5
"""Effective part of the tokens of an age below which it is worth a line."""
_LARGEST = 50.0
"""Log-ratios are cut here, so that their squares stay finite."""
_ADVICE = (
    "Compare templates, tokenizers, temperature and number formats of both; see that the engine has the version's"
    " weights."
)
_ADVICE_ON_AGE = "Allow fewer versions of age, or cut the importance weights."
_TOKENS = """
WITH taken AS (
    SELECT step, trace_id, span_id, max(policy_version) AS trained FROM trajectories WHERE {where} GROUP BY ALL
), listed AS (
    SELECT step, trace_id, span_id, number, unnest(logprobs) AS engine, unnest(trainer_logprobs) AS trainer,
        unnest(mask) AS kept, unnest(range(len(logprobs))) AS token,
        CASE WHEN policy_version >= 0 AND trained >= 0 THEN greatest(0, trained - policy_version) END AS age
    FROM messages LEFT JOIN taken USING (step, trace_id, span_id)
    WHERE {where} AND {of_traces} AND len(logprobs) > 0 AND len(trainer_logprobs) = len(logprobs)
), known AS (
    SELECT *, engine >= {probable} AND engine - trainer > {nats} AS differs FROM listed
    WHERE kept IS DISTINCT FROM false AND isfinite(engine) AND NOT isnan(trainer)
)
"""
_AGES = """
SELECT age, count(*) AS tokens, sum(weight) ** 2 / (count(*) * sum(weight ** 2)) AS worth,
    count(*) FILTER (differs) AS wrong
FROM (SELECT age, differs, exp(least(trainer - engine, {largest})) AS weight FROM known) GROUP BY age ORDER BY age
"""
_SPREAD = """
SELECT count(DISTINCT trace_id || span_id) AS trajectories, min(step) AS first, max(step) AS last FROM known
WHERE differs AND age IS NOT DISTINCT FROM {age}
"""
_WORST = """
SELECT step, trace_id, number AS turn, token, engine, trainer FROM known
WHERE differs AND age IS NOT DISTINCT FROM {age} ORDER BY engine - trainer DESC, step, trace_id, turn, token LIMIT 10
"""


class TokenAge(NamedTuple):
    """The tokens of an age."""

    age: int | None  # versions between the policy that wrote them and the one that was trained; `None` if it is unknown
    tokens: int  # number of tokens
    worth: float  # effective sample size by importance weights, as a part of the tokens
    wrong: int  # number of tokens that the engine found probable and the trainer does not


class Token(NamedTuple):
    """A token that the engine found probable and the trainer does not: where it is, and both probabilities."""

    step: int
    trace_id: str
    turn: int
    token: int
    engine: float
    trainer: float


class TokenScope(NamedTuple):
    """The trajectories that are looked at: their steps, and the ids of their traces, by default all."""

    steps: Sequence[int]
    traces: Collection[str] | None = None


def ages(run: RunReader, chosen: TokenScope) -> list[TokenAge]:
    """Return the tokens that were trained on, by age."""
    return [TokenAge(*line) for line in _lines(run, chosen, _AGES.format(largest=_LARGEST))]


def tokens(run: RunReader, chosen: TokenScope, age: int | None = 0) -> list[Token]:
    """Return ten tokens of an age that the engine found probable and the trainer does not, the worst first."""
    lines = _lines(run, chosen, _WORST.format(age=_literal(age)))
    return [Token(*line[:-2], *map(math.exp, line[-2:])) for line in lines]


def mismatch(run: RunReader, chosen: TokenScope) -> list[Remark]:
    """Return that engine and trainer disagree about tokens, and that old tokens are worth little.

    Without any version, as in a run without `policy_version`, tokens count as those of the newest one.
    """
    known = ages(run, chosen)
    newest = next((age for age in known if age.age == 0 or (age.age is None and len(known) == 1)), None)
    return [*([_of_tokens(run, chosen, newest)] if newest and newest.wrong else []), *_of_ages(known, chosen.steps)]


def _of_tokens(run: RunReader, chosen: TokenScope, newest: TokenAge) -> Remark:
    worst = tokens(run, chosen, newest.age)
    ((trajectories, first, last),) = _lines(run, chosen, _SPREAD.format(age=_literal(newest.age)))
    token, is_known = worst[0], newest.age == 0
    version = " of the same version" if is_known else ", whose versions are unknown,"
    return Remark(
        kind="mismatch",
        severity="bad" if is_known else "warning",
        sentence=(
            f"Engine and trainer{version} disagree about {wording.count(newest.wrong, 'token')} in "
            f"{wording.count(trajectories, 'trajectory', 'trajectories')} since step {wording.integer(first)}: "
            f"token {wording.integer(token.token)} of turn {token.turn} of trajectory {short(token.trace_id)} in step "
            f"{wording.integer(token.step)} has a probability of {wording.number(token.engine)} in the engine, "
            f"{wording.number(token.trainer)} in the trainer."
        ),
        advice=f"{to_read(of_trajectory(token.trace_id) for token in worst)} {_ADVICE}",
        steps=(first, last),
        sure="certain" if is_known else "likely",
        subject=ENGINE_GAP,
    )


def _of_ages(known: list[TokenAge], steps: Sequence[int]) -> list[Remark]:
    aged = [age for age in known if age.age is not None and age.tokens >= _LEAST_TOKENS]
    if all(age.worth >= _LITTLE for age in aged):
        return []
    shares = [f"{wording.percent(age.worth)} at {age.age}" for age in aged]
    return [
        Remark(
            kind="mismatch",
            severity="warning",
            sentence=f"Effective sample size of tokens by age in versions: {wording.names(shares, 8)}.",
            advice=_ADVICE_ON_AGE,
            steps=(min(steps), max(steps)),
        )
    ]


def _literal(age: int | None) -> str:
    return "NULL" if age is None else str(age)


def _lines(run: RunReader, chosen: TokenScope, query: str) -> list[tuple[Any, ...]]:
    of_traces = "true" if chosen.traces is None else one_of("trace_id", chosen.traces)
    numbers = {"probable": math.log(PROBABLE), "nats": NATS}
    known = _TOKENS.format(where=one_of("step", chosen.steps), of_traces=of_traces, **numbers)
    return lines_of(run.sql(known + query, steps=each_of(chosen.steps)))
