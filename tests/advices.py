"""All sentences of the library that give advice, as its source has them, with the tests of each.

An advice is the text of an argument, a field or a variable whose name has *advice* in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LIBRARY = Path(__file__).parents[1] / "otel_rl"
ROOMS = ("autopsy", "look/insight")
"""The rooms that conclude what is wrong; errors and the checks of `doctor` say their fix themselves."""


class AdviceTests(NamedTuple):
    """The tests of an advice: one in which it is right and following it helps, and one in which it is not given."""

    helps: str
    not_given: str


_CAUSES = AdviceTests(
    "autopsy/test_advice.py::test_advice_that_helps", "autopsy/test_advice.py::test_advice_for_another_cause"
)
_HERE = "look/insight/test_advice.py::test_advice_that_helps"
_CASES = AdviceTests(_HERE, _HERE)
_ROWS = AdviceTests(
    "look/insight/test_contradictions.py::test_what_contradicts_itself",
    "look/insight/test_contradictions.py::test_what_can_be",
)
_GROUPS = AdviceTests(
    "look/insight/test_contradicting_groups.py::test_groups_that_cannot_be",
    "look/insight/test_contradicting_groups.py::test_groups_that_can_be",
)


def _of(module: str, helps: str, not_given: str = "") -> AdviceTests:
    """Return two tests of a module of `tests/look/insight`; without a second one, the first one has both."""
    return AdviceTests(*(f"look/insight/{module}.py::{test}" for test in (helps, not_given or helps)))


_WELL = "test_a_run_that_is_well"
_MOVED = _of("test_worker_load", "test_sessions_that_stay_on_one_worker")
_FLAT = _of("test_findings", "test_a_reward_that_teaches_nothing", _WELL)
_LOST = AdviceTests(
    "look/insight/test_hang.py::test_what_was_lost_is_a_finding", f"look/insight/test_findings.py::{_WELL}"
)
_LATE = _of("test_change_cause", "test_requests_that_are_not_the_reason", "test_fewer_requests_at_once")

TESTS: Mapping[str, Mapping[str, AdviceTests]] = {
    "autopsy/causes": {"": _CAUSES},
    "autopsy/conclude": {
        "See how it ended": AdviceTests(
            "autopsy/test_verdict.py::test_nothing_is_known",
            "autopsy/test_verdict.py::test_a_phase_that_is_not_overdue",
        )
    },
    "autopsy/verdict": {
        "If it hangs all the same": AdviceTests(
            "autopsy/test_verdict.py::test_a_phase_that_is_not_overdue",
            "autopsy/test_advice.py::test_advice_that_helps",
        )
    },
    "contradictions/of_bounds": {"": _ROWS},
    "contradictions/of_course": {"": _ROWS},
    "contradictions/of_groups": {"": _GROUPS},
    "contradictions/of_learning": {"": _ROWS},
    "contradictions/of_settings": {"": _ROWS},
    "contradictions/of_shares": {"": _ROWS},
    "contradictions/of_sizes": {"": _ROWS},
    "contradictions/of_terms": {"": _ROWS},
    "findings/anomalies": {
        "": _CASES,
        "Look at KL, entropy": _of("test_findings", "test_what_a_diverging_run_says", _WELL),
    },
    "findings/change_cause": {
        "Look at {} in the timeline": _LATE,
        "Give the driver's own": _of("test_advice", "test_a_driver_that_became_slower"),
        "Look at other processes": _of(
            "test_change_cause", "test_all_phases_that_are_slower_alike", "test_one_phase_that_is_slower"
        ),
        "Compare {} with the others": _of("test_advice", "test_a_rank_that_became_slower_alone"),
        "Read the longest": _of(
            "test_change_cause",
            "test_the_longest_completions_alone",
            "test_longest_completions_that_are_not_the_reason",
        ),
        "Keep as many requests": _of(
            "test_change_cause", "test_fewer_requests_at_once", "test_requests_that_are_not_the_reason"
        ),
        "Cap the length": _of(
            "test_change_cause", "test_completions_that_grew_on_all_ranks", "test_completions_that_grew_at_other_steps"
        ),
    },
    "findings/data": {"": _CASES},
    "findings/hidden_change": {
        "": _of("test_hidden_change", "test_a_phase_of_few_steps"),
        "Look at how many": _of("test_hidden_change", "test_an_empty_block_of_most_steps", "test_a_phase_of_few_steps"),
    },
    "findings/trajectory_times": {
        "Look at {} of": _of(
            "test_hidden_change", "test_one_part_of_all_trajectories", "test_all_parts_of_trajectories"
        ),
        "Read the longest": _of(
            "test_hidden_change", "test_the_longest_trajectory_alone", "test_the_model_of_all_trajectories"
        ),
    },
    "findings/engine_load": {
        "Look at how requests": _of(
            "test_change_cause", "test_an_engine_that_gets_all_requests", "test_engines_with_as_many_requests_as_before"
        )
    },
    "findings/engines": {
        "Send fewer requests": _CASES,
        "More engines": _CASES,
        "Look at how requests are spread over workers.": _of(
            "test_workers", "test_a_worker_that_gets_no_work", "test_a_worker_that_works_while_the_others_do_not"
        ),
        "Look at how requests are spread over workers, and": _of(
            "test_workers", "test_a_worker_that_works_while_the_others_do_not"
        ),
        "Compare with the time": _of("test_findings", "test_a_step_time_that_leaves_time_out", _WELL),
    },
    "findings/goodput": {"": _of("test_advice", "test_the_largest_loss_of_time")},
    "findings/hangs": {"": _of("test_troubles", "test_one_that_ended_is_said", "test_others_are_not_said")},
    "findings/held_out": {
        "": _of(
            "test_slow_illness",
            "test_an_evaluation_that_falls_while_the_reward_rises",
            "test_evaluations_of_which_one_rises",
        )
    },
    "findings/learning": {"": _of("test_findings", "test_what_a_diverging_run_says", _WELL)},
    "findings/memory": {
        "A longer batch": _CASES,
        "The report in `oom/`": _of(
            "test_troubles", "test_a_death_for_lack_of_memory_is_one_line", "test_others_are_not_said"
        ),
        "Look for what {} keeps": _of("test_findings", "test_memory_that_grows", "test_memory_that_does_not_grow"),
    },
    "findings/mismatch": {
        "Look at the last change": _of("test_findings", "test_engine_and_trainer_that_differ", _WELL),
        "Look at the weight sync": _CASES,
        "Samples cannot prove": _CASES,
    },
    "findings/outcome": {"": _of("test_advice", "test_how_a_run_ended")},
    "findings/policy_signs": {
        "Check its learning rate": _of("test_slow_illness", "test_a_critic_that_is_worse_than_none"),
        "Read samples": _of("test_slow_illness", "test_completions_that_collapse"),
    },
    "findings/recording": {
        "Nothing is lost": _of("test_states", "test_an_exporter_that_fails", "test_a_run_that_finished"),
        "The trainer's log": _LOST,
        "`agent.log`": _LOST,
        "Restore the files": _of("test_findings", "test_a_damaged_archive", _WELL),
        "The values of these steps": _of("test_advice", "test_ranks_without_values"),
        "Times of phases": _of("test_findings", "test_a_thinned_archive", _WELL),
    },
    "findings/resumed": {"": _of("test_slow_illness", "test_a_resume_that_lost_what_was_learned")},
    "findings/reward": {
        "The prompts are solved": _FLAT,
        "Look at samples": _FLAT,
        "If it is as good": _of("test_findings", "test_a_reward_that_is_flat_in_the_end"),
        "Look at KL": _of("test_findings", "test_what_a_diverging_run_says", _WELL),
        "If {} is the aim": _of(
            "test_course", "test_a_reward_that_is_paid_for_something_else", "test_a_reward_that_is_earned"
        ),
    },
    "findings/straggler": {"": _of("test_findings", "test_a_rank_that_is_slow", "test_a_rank_that_was_slow")},
    "findings/time_spent": {"": _of("test_advice", "test_time_in_no_phase")},
    "findings/waits": {
        "": AdviceTests(
            "look/insight/test_hang.py::test_a_wait_that_can_never_end_is_a_finding",
            "look/insight/test_hang.py::test_what_was_lost_is_a_finding",
        )
    },
    "findings/worker_load": {"": _MOVED},
    "insight/known_messages": {"": _of("test_last_words", "test_deaths", "test_what_is_no_reason")},
    "remarks/collect": {
        "": _of("test_samples", "test_a_phrase_that_pays_is_named", "test_a_policy_without_a_trick_has_no_phrase")
    },
    "remarks/reward_conflicts": {
        "": _of("test_text_rules", "test_what_is_said_of_parts", "test_parts_of_a_reward_that_do_not_part")
    },
    "remarks/text_rules": {
        "": _of("test_text_rules", "test_completions_that_become_garbled", "test_clean_runs_have_no_fault"),
        "Look at entropy": _of(
            "test_text_rules", "test_completions_that_repeat_themselves_from_the_start", "test_clean_runs_have_no_fault"
        ),
        "If the task does not": _of("test_text_rules", "test_a_task_that_asks_for_another_script"),
        "Check that the verifier": _of("test_advice", "test_completions_that_copy_their_prompt"),
    },
    "remarks/token_mismatch": {
        "Compare templates": _of(
            "test_blame", "test_tokens_of_the_newest_version_that_differ", "test_the_worth_of_old_tokens"
        ),
        "Allow fewer versions": _of(
            "test_blame", "test_the_worth_of_old_tokens", "test_tokens_of_the_newest_version_that_differ"
        ),
    },
    "why/of_run": {
        "Steps cannot": _of("test_why_of_run", "test_a_run_without_spans", "test_slow_steps"),
        "No step stands": _of("test_why_of_run", "test_the_first_step_is_a_warm_up", "test_slow_steps"),
    },
}
"""The tests of each advice, by its module and its beginning; an empty beginning is for all others of the module."""


def advices() -> list[tuple[str, str]]:
    """Return the end of the module's path, and the text, of each advice; fields of a text are `{}`."""
    files = [path for room in ROOMS for path in sorted((LIBRARY / room).rglob("*.py")) if "doctor" not in path.parts]
    trees = {path: ast.parse(path.read_text()) for path in files}
    public = {name: place for tree in trees.values() for name, place in _takers(tree) if not name.startswith("_")}
    found = {
        ("/".join(path.with_suffix("").parts[-2:]), text)
        for path, tree in trees.items()
        for places in [public | dict(_takers(tree))]
        for node in ast.walk(tree)
        for value in _values(node, places)
        for text in _texts(value)
        if text.count(" ") > 2
    }
    return sorted(found)


def _takers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the functions and classes that take an advice by its place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args]
        elif isinstance(node, ast.ClassDef):
            names = [
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
        else:
            continue
        if "advice" in names:
            yield node.name, names.index("advice")


def _values(node: ast.AST, places: Mapping[str, int]) -> Iterator[ast.expr]:
    """Yield the expressions of advice in a call or an assignment."""
    if isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg == "advice")
        place = places.get(node.func.id) if isinstance(node.func, ast.Name) else None
        yield from node.args[place : place + 1] if place is not None else ()
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        pairs = [(target, node.value) for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=True)
            elif isinstance(target, ast.Name) and "advice" in target.id.lower():
                yield value


def _texts(value: ast.AST) -> Iterator[str]:
    if isinstance(value, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in value.values)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif not isinstance(value, ast.Compare):
        for child in ast.iter_child_nodes(value):
            yield from _texts(child)
