"""Detection of the framework, by imported modules and by logged names."""

from __future__ import annotations

import pytest

from otel_rl.semconv.dialect import dialect
from otel_rl.semconv.frameworks import dialects, frameworks, imported
from otel_rl.semconv.vocabulary import Vocabulary
from tests.semconv.names import CAPTURED, captured

VERL = ["actor/pg_loss", "training/rollout_probs_diff_mean", "timing_s/gen"]
TRL = ["completions/mean_length", "frac_reward_zero_std", "clip_ratio/low_mean"]


@pytest.mark.parametrize("framework", dialects())
def test_an_imported_framework_is_recognised(framework: str) -> None:
    """One of its modules is enough."""
    assert imported({"torch", frameworks()[framework].modules[0]}) == framework


@pytest.mark.parametrize("modules", [{"torch"}, {"verl", "openrlhf"}])
def test_no_framework_or_several_are_not_recognised(modules: set[str]) -> None:
    """The imported modules are ambiguous."""
    assert imported(modules) is None


@pytest.mark.parametrize("framework", CAPTURED)
def test_a_framework_is_recognised_by_its_names(framework: str) -> None:
    """The names that its code logs are read best by its own dialect."""
    vocabulary = Vocabulary("auto")

    assert vocabulary.learn(captured(framework))
    assert vocabulary.chosen == framework


def test_what_a_dialect_declares_is_not_a_name_of_otel_rl() -> None:
    """Stable-Baselines3 logs `time/fps` in timesteps per second; `time/rollout` is the time of a phase."""
    vocabulary = Vocabulary("stable_baselines3")

    assert vocabulary.read("time/fps") is None
    assert vocabulary.read("time/rollout") is not None
    assert Vocabulary("trl").read("time/fps") is not None


def test_nothing_is_chosen_before_names_tell() -> None:
    """A name that nobody knows makes no choice."""
    vocabulary = Vocabulary("auto")

    assert not vocabulary.learn(["my/own/metric"])
    assert vocabulary.chosen is None


def test_frameworks_that_share_what_was_seen_are_not_told_apart() -> None:
    """Trinity-RFT trains with verl; a name of verl's chooses neither, and means what it means in both."""
    vocabulary = Vocabulary("auto")

    assert not vocabulary.learn(["actor/pg_loss"])
    assert vocabulary.chosen is None
    assert vocabulary.read("critic/vpred_mean") == dialect("verl").read("critic/vpred_mean")


def test_learning_says_when_the_choice_changes() -> None:
    """The first names choose, more of the same change nothing, and more of another framework's do."""
    vocabulary = Vocabulary("auto")

    assert [vocabulary.learn(VERL[:2]), vocabulary.learn(VERL), vocabulary.learn([*TRL, "tools/call_frequency"])] == [
        True,
        False,
        True,
    ]
    assert vocabulary.chosen == "trl"


def test_a_name_counts_once() -> None:
    """A name that is logged in every step does not outweigh the others."""
    vocabulary = Vocabulary("auto")
    vocabulary.learn(["actor/pg_loss"] * 100)
    vocabulary.learn(TRL)

    assert vocabulary.chosen == "trl"


def test_a_choice_changes_what_was_read_before() -> None:
    """A name that frameworks disagree on is not guessed; it has a meaning from the choice on."""
    vocabulary = Vocabulary("auto")
    name = disputed()
    before = vocabulary.read(name)
    vocabulary.learn(captured("openrlhf"))

    assert before is None
    assert vocabulary.read(name) == dialect("openrlhf").read(name)


def test_a_name_that_only_one_framework_has_is_known_at_once() -> None:
    """Nobody contradicts it."""
    name = "completions/mean_terminated_length"

    assert Vocabulary("auto").read(name) == dialect("trl").read(name)


def test_a_given_dialect_stays() -> None:
    """Names of another framework neither change it nor have a meaning in it."""
    vocabulary = Vocabulary("verl")

    assert not vocabulary.learn(captured("trl"))
    assert vocabulary.chosen == "verl"
    assert vocabulary.read("frac_reward_zero_std") is None
    assert vocabulary.read("actor/pg_loss") == dialect("verl").read("actor/pg_loss")


def test_what_is_derived_is_known_beside_every_dialect() -> None:
    """The recorder's own names have their meaning whatever the framework, and never choose one."""
    own = dialect("otel_rl").read("perf/steps_per_second")
    vocabulary = Vocabulary("auto")
    vocabulary.learn(["perf/steps_per_second", "perf/mfu"])

    assert own is not None
    assert vocabulary.chosen is None
    assert vocabulary.read("perf/steps_per_second") == own
    assert Vocabulary("verl").read("perf/steps_per_second") == own


def test_names_without_end_do_not_fill_the_memory() -> None:
    """After 20,000 names nothing more is learnt."""
    vocabulary = Vocabulary("auto")
    vocabulary.learn(f"step_{n}" for n in range(20_000))

    assert not vocabulary.learn(VERL)
    assert vocabulary.chosen is None


def disputed() -> str:
    """Return a name that two dialects read differently."""
    names = [name for framework in CAPTURED for name in captured(framework)]
    for name in names:
        readings = [reading for each in dialects() if (reading := dialect(each).read(name))]
        meanings = {(reading.metric, reading.attributes) for reading in readings}
        if len(meanings) > 1 and dialect("openrlhf").read(name) is not None:
            return name
    raise LookupError("no two dialects disagree")


def test_a_mapped_name_is_read_although_a_pattern_declares_it() -> None:
    """A pattern of names without a meaning also fits names that have one."""
    assert Vocabulary("verl").read("fully_async/count/current_param_version") is not None
