"""Rules over completions: clean texts keep to the stated rates, and planted faults are found and said."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec
import pytest

from benchmarks.text_alarms import APART, CLEAN, PLANTED, TOGETHER, disagreements, found, parted, rates
from otel_rl.look.insight.samples.remarks.faulty_texts import faults
from otel_rl.look.insight.samples.remarks.reward_conflicts import FALSE_ALARMS, reward_conflicts
from otel_rl.look.insight.samples.remarks.text_rules import RULES, copied, foreign, garbled, repeated
from otel_rl.look.insight.samples.sample import TextSample

_TEXTS = 500


@pytest.mark.parametrize("kind", CLEAN)
def test_few_clean_texts_are_taken_for_faulty(kind: str) -> None:
    """Of 500 texts of each kind, each rule takes one at most, as a few in 10,000 let expect."""
    assert max(rates(CLEAN[kind](random.Random(2)), _TEXTS).values()) <= 10_000 / _TEXTS


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLEAN)
def test_clean_texts_keep_to_the_stated_rates(kind: str) -> None:
    """In 10,000 texts of each kind, each rule takes at most so many for faulty as it states."""
    measured = rates(CLEAN[kind](random.Random(1)), 10_000)

    assert not {rule.name: measured[rule.name] for rule in RULES if measured[rule.name] > rule.false_alarms}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_found(fault: str) -> None:
    """Four of five texts with a planted fault have it by its rule, at the least."""
    assert found(fault, 100) >= 0.8


@pytest.mark.parametrize(
    ("score", "prompt", "text"),
    [
        (garbled, "", "Δx = 3 μm, cosθ ≤ 1, 𝑥² ∈ ℝ, the naïve café — “quoted” 👩‍👩‍👧 done"),  # noqa: RUF001
        (garbled, "", "cut in the middle of a character\ufffd\ufffd"),
        (garbled, "", "我们使用Python的列表, 日本語のテキスト, 한국어는Python을"),
        (foreign, "用中文回答", "答案是 42, because of the API"),
        (foreign, "What is the sum?", "It is α + β + γ + δ + ε + ζ + η + θ + ι + κ + λ"),  # noqa: RUF001
        (foreign, "", "ответ есть, и он верный: the answer"),
        (repeated, "", "ha" * 40),
        (copied, "short", "short" * 40),
    ],
)
def test_what_is_no_fault(score: Callable[[str, str], float], prompt: str, text: str) -> None:
    """Mathematics, emoji, terms in Latin letters, a text that was cut, and texts that are too short."""
    assert score(prompt, text) == 0


@pytest.mark.parametrize("text", ["", "\ud800" * 300, "\x00" * 10_000, "a" * 1_000_000, "\u202e" * 300])
def test_rules_take_any_text(text: str) -> None:
    """Lone surrogates, control characters and a million times one character have scores between 0 and 1."""
    assert all(0 <= rule.score(text, text) <= 1 for rule in RULES)


def _samples(texts: Iterator[str], steps: int, of_step: int = 20, prompt: str = "Q: 2 + 2?") -> list[TextSample]:
    return [
        TextSample(
            step=step,
            table="completions",
            number=number,
            group=number // 4,
            prompt=prompt,
            completion=next(texts),
            reward=0.0,
            components={},
        )
        for step in range(steps)
        for number in range(of_step)
    ]


def _clean(seed: int = 1) -> Iterator[str]:
    return (sample.completion for sample in CLEAN["Python's documentation"](random.Random(seed)))


def test_completions_that_become_garbled() -> None:
    """The share, the step, the number, and three samples to read are said."""
    texts = [*islice(_clean(), 600)]
    for at in range(400, 600, 4):
        texts[at] = "".join(f"{letter}\ufffd" for letter in texts[at])

    (remark,) = faults(_samples(iter(texts), 30))
    assert remark.sentence == (
        "25 % of completions are garbled since step 20, 0 % before (50 of 200): "
        "characters that no text needs, or alphabets mixed within words."
    )
    assert remark.advice.startswith("Read otel-rl samples --steps 20 --group ")
    assert remark.advice.count("--group") == 3
    assert remark.steps == (20, 29)


def test_completions_that_repeat_themselves_from_the_start() -> None:
    """A fault that was always there begins in the first step."""
    texts = (text if n % 3 else text[:20] * 200 for n, text in enumerate(_clean()))

    (remark,) = faults(_samples(texts, 12))
    assert remark.sentence.startswith("33 % of completions are repetitive since step 0 (80 of 240)")


def test_a_task_that_asks_for_another_script() -> None:
    """Translations into Russian from the first step on are not a fault; those that begin later are."""
    russian = "Это обычный русский текст, который кто-то написал в ответ. "
    always = _samples((f"{n}: {russian}" for n in iter(int, 1)), 30, prompt="Translate: ...")
    later = _samples((russian if n >= 400 else f"Sum {n}" for n in range(600)), 30, prompt="Translate: ...")

    assert faults(always) == []
    assert [fault.sentence.split(":")[0] for fault in faults(later)] == [
        "100 % of completions are in another script since step 20, 0 % before (200 of 200)"
    ]


def test_clean_runs_have_no_fault() -> None:
    """Three runs of each kind of clean text."""
    for make in CLEAN.values():
        for seed in range(3):
            texts = (sample.completion for sample in make(random.Random(seed)))
            assert faults(_samples(texts, 10)) == []


@pytest.mark.parametrize("name", TOGETHER)
def test_parts_of_a_reward_that_do_not_part(name: str) -> None:
    """None of 3 runs is said to have parts that part."""
    assert parted(TOGETHER[name], 3) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
def test_parts_keep_to_the_stated_rate(name: str) -> None:
    """Of 200 runs."""
    assert parted(TOGETHER[name], 200) <= FALSE_ALARMS


@pytest.mark.parametrize("name", APART)
def test_parts_that_part_are_found(name: str) -> None:
    """In 3 of 4 runs at least."""
    assert parted(APART[name], 4) >= 0.75


def test_what_is_said_of_parts() -> None:
    """Both means, since when, and the samples in which it shows the most."""
    (remark,) = reward_conflicts(APART["one jumps by 0.5 sd, the other falls by 0.5"].samples(1))

    assert remark.sentence.startswith("reward/first rises while reward/second falls since step 5")
    assert " → " in remark.sentence
    assert remark.advice.startswith("Read otel-rl samples --steps 99 --group 0.")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [1.0, math.inf, math.nan, 1e300])
def test_parts_of_any_size(value: float) -> None:
    """Parts that are constant, not finite, or too large for squares part from nothing."""
    changed = (
        msgspec.structs.replace(sample, components={"reward/first": value, "reward/second": -value * sample.number})
        for sample in TOGETHER["both stay"].samples(1, 40)
    )

    assert reward_conflicts(changed) == []


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_rounding_makes_no_token_differ(noise: float) -> None:
    """Of thousands of probable tokens, none is 2 nats lower after rounding to bfloat16 and noise of kernels."""
    probable, lower = disagreements(noise, 5_000)

    assert probable > 1_000
    assert lower == 0
