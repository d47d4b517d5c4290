"""All rules about facts that contradict each other. A new one is a function and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.contradictions import (
    of_bounds,
    of_course,
    of_groups,
    of_learning,
    of_settings,
    of_shares,
    of_sizes,
    of_terms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from otel_rl.look.insight.contradictions.columns import Columns
    from otel_rl.look.insight.contradictions.contradiction import Contradiction

RULES: tuple[Callable[[Columns], Contradiction | None], ...] = (
    of_groups.advantages_off_center,
    of_groups.advantages_against_rewards,
    of_groups.equal_completions,
    of_groups.one_prompt,
    of_groups.no_tokens,
    of_shares.fraction_outside,
    of_shares.cut_below_the_limit,
    of_shares.mean_outside_its_extremes,
    of_shares.counters_in_ratio,
    of_terms.constant_term,
    of_terms.negative_divergence,
    of_terms.negative_coefficient,
    of_learning.zero_learning_rate,
    of_learning.zero_gradient,
    of_terms.silent_source,
    of_terms.parts_are_not_the_sum,
    of_terms.sampling_gap,
    of_sizes.groups_of_one,
    of_sizes.rate_that_adds_up,
    of_sizes.loss_without_tokens,
    of_sizes.two_deviations,
    of_bounds.negative_entropy,
    of_bounds.deviation_above_the_range,
    of_bounds.mean_is_the_maximum,
    of_bounds.part_above_its_whole,
    of_settings.rate_above_its_parameter,
    of_settings.longer_than_the_limit,
    of_settings.updates_that_move_nothing,
    of_settings.held_out_is_training,
    of_course.peak_below_the_mean,
    of_course.held_out_that_stays,
    of_course.counter_that_starts_over,
)


def wanted(names: Collection[str]) -> list[str]:
    """Return the names of metrics that the rules read, without the main metrics."""
    rooms = of_bounds, of_course, of_groups, of_learning, of_settings, of_shares, of_sizes, of_terms
    return [name for room in rooms for name in room.wanted(names)]


def contradictions_of(columns: Columns) -> dict[str, Contradiction]:
    """Return what contradicts itself, by the name of the rule."""
    found = ((rule.__name__, rule(columns)) for rule in RULES)
    return {name: contradiction for name, contradiction in found if contradiction is not None}
