"""How often rules over what the policy wrote take clean texts for faulty, and how often they find planted faults.

Run with `python -m benchmarks texts`. The clean texts are Python's own documentation and sources, and generated
mathematics and Chinese; the test suite runs a part of them.
"""

from __future__ import annotations

import math
import random
import sysconfig
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.tables import Cell, Table
from otel_rl.look.insight.samples.remarks.reward_conflicts import FALSE_ALARMS, reward_conflicts
from otel_rl.look.insight.samples.remarks.text_rules import RULES
from otel_rl.look.insight.samples.remarks.token_mismatch import NATS, PROBABLE
from otel_rl.look.insight.samples.sample import TextSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TEXTS, RUNS = 10_000, 200
_SHORTEST, _LONGEST = 60, 6_000
_OF = 10_000


class Text(NamedTuple):
    """A prompt and a completion."""

    prompt: str
    completion: str


def _passages(whole: str, dice: random.Random) -> Iterator[Text]:
    """Yield passages of a long text, each with the one before as its prompt."""
    while True:
        length = round(math.exp(dice.uniform(math.log(_SHORTEST), math.log(_LONGEST))))
        begin = dice.randrange(1_000, len(whole) - length)
        yield Text(whole[begin - dice.randrange(100, 1_000) : begin], whole[begin : begin + length])


def _documentation(dice: random.Random) -> Iterator[Text]:
    return _passages("\n\n".join(topics.values()), dice)


def _code(dice: random.Random) -> Iterator[Text]:
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted({*library.glob("*.py"), *library.glob("*/*.py")})
    return _passages("\n\n".join(file.read_text(errors="ignore") for file in files), dice)


def _mathematics(dice: random.Random) -> Iterator[Text]:
    """Yield sums that are solved step by step, in words, LaTeX and Unicode."""
    while True:
        a, b, c = (dice.randrange(2, 99) for _ in range(3))
        thing, number = dice.choice(_THINGS), round(math.exp(dice.uniform(0.5, 4)))
        lines = [_line(dice.randrange(4), n, a, b, c, thing) for n in range(1, number + 1)]
        yield Text(
            f"Tom has {a} {thing} and buys {b} more, {c} times. How many has he? Put it into \\boxed{{}}.",
            "\n".join([*lines, f"So he has \\boxed{{{a + b * c}}} {thing}."]),
        )


_THINGS = ("apples", "eggs", "hours", "dollars", "pages", "students", "meters", "boxes")


def _line(way: int, n: int, a: int, b: int, c: int, thing: str) -> str:
    if way == 0:
        return f"Step {n}: {a} + {b}·{n} = {a + b * n} {thing}."
    if way == 1:
        return f"\\[ x_{{{n}}} = \\frac{{{a * n}}}{{{b}}} + \\sum_{{i=1}}^{{{n}}} {c} i = {a * n / b + c * n:.3f} \\]"
    if way == 2:
        return f"Let θ = {a * n}°, so cos θ ≤ 1 and Δx = {b / (n + 1):.2f}; λ₁ ≈ {c * 0.37 * n:.2f} ∈ ℝ."  # noqa: RUF001
    return f"We check: ${a}^{n} \\equiv {pow(a, n, c)} \\pmod{{{c}}}$, which is what we need here."


_CHINESE = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种"
    "事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第"
    "公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合"
    "回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总"
    "何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼书非则听"
)
_TERMS = ("Python", "API", "x = 3", "GPU", "n", "2024", "Transformer", "log(x)")


def _chinese(dice: random.Random) -> Iterator[Text]:
    """Yield sentences of frequent characters, with terms in Latin letters."""
    weights = [1 / (n + 3) for n in range(len(_CHINESE))]

    def text(length: int) -> str:
        letters = dice.choices(_CHINESE, weights, k=length)
        for _ in range(length // 25):
            letters[dice.randrange(length)] = dice.choice("，。，。、：；？")  # noqa: RUF001
        for _ in range(length // 60):
            letters[dice.randrange(length)] = dice.choice(_TERMS)
        return "".join(letters)

    while True:
        yield Text(text(dice.randrange(10, 100)), text(round(math.exp(dice.uniform(2, 7)))))


CLEAN: dict[str, Callable[[random.Random], Iterator[Text]]] = {
    "Python's documentation": _documentation,
    "Python's sources": _code,
    "mathematics, generated": _mathematics,
    "Chinese, generated": _chinese,
}


def rates(texts: Iterable[Text], count: int) -> dict[str, float]:
    """Return how many of 10,000 texts each rule takes for faulty."""
    found: Counter[str] = Counter()
    for _, one in zip(range(count), texts, strict=False):
        found.update(rule.name for rule in RULES if rule.score(*one) >= rule.least)
    return {rule.name: _OF * found[rule.name] / count for rule in RULES}


def _garbled(text: Text, dice: random.Random) -> Text:
    letters = list(text.completion)
    for _ in range(max(3, len(letters) // 20)):
        letters[dice.randrange(len(letters))] = dice.choice("\ufffd\ufffd\x00\x1b\x85\ue000")
    return text._replace(completion="".join(letters))


def _mixed_words(text: Text, dice: random.Random) -> Text:
    """Put Cyrillic letters that look like Latin ones into words, as a broken tokenizer or a trick does."""
    swapped = str.maketrans("aeopcxy", "аеорсху")  # noqa: RUF001
    words = [word.translate(swapped) if dice.random() < 0.2 else word for word in text.completion.split(" ")]
    return text._replace(completion=" ".join(words))


def _looped(text: Text, dice: random.Random) -> Text:
    size = dice.choice((1, 5, 40, 150))
    return text._replace(completion=text.completion + text.completion[:size] * (4_000 // size))


def _switched(text: Text, dice: random.Random) -> Text:
    half = len(text.completion) // 2
    other = "".join(dice.choices(_CHINESE, k=max(10, half // 4)))
    return text._replace(completion=text.completion[:half] + other + text.completion[half:])


def _copied(text: Text, dice: random.Random) -> Text:
    kept = len(text.prompt) - dice.randrange(0, 40)
    return text._replace(completion=text.prompt[-kept:] + text.completion[: kept // 8])


PLANTED: dict[str, tuple[str, Callable[[Text, random.Random], Text]]] = {
    "5 % control and replacement characters": ("garbled", _garbled),
    "Cyrillic letters in a fifth of the words": ("garbled", _mixed_words),
    "1 to 150 characters again and again": ("repetitive", _looped),
    "an eighth in Chinese, the prompt in English": ("in another script", _switched),
    "eight ninths are the end of the prompt": ("copied from the prompt", _copied),
}


def found(fault: str, count: int, seed: int = 1) -> float:
    """Return which part of so many documentation texts with a planted fault its rule finds."""
    name, plant = PLANTED[fault]
    rule, dice = next(one for one in RULES if one.name == name), random.Random(seed)
    texts = (one for one in _documentation(dice) if len(one.completion) > 200 and len(one.prompt) > 200)
    changed = (plant(one, dice) for _, one in zip(range(count), texts, strict=False))
    return sum(rule.score(*one) >= rule.least for one in changed) / count


class Parts(NamedTuple):
    """Two parts of a reward: by the part of the run that has passed, their means and their correlation."""

    first: Callable[[float], float]
    second: Callable[[float], float]
    correlation: Callable[[float], float] = lambda _: 0.0
    keeps: float = 0.5

    def samples(self, seed: int, steps: int = 100, of_step: int = 16) -> Iterator[TextSample]:
        """Yield the samples of a run; the mean of a step varies, and that of neighboring steps alike."""
        dice = np.random.default_rng(seed)
        drift = np.zeros(2)
        for step in range(steps):
            drift = self.keeps * drift + math.sqrt(1 - self.keeps**2) * dice.normal(0, 0.15, 2)
            part, common = step / steps, dice.normal(size=of_step)
            alike = self.correlation(part)
            other = alike * common + math.sqrt(1 - alike**2) * dice.normal(size=of_step)
            means = self.first(part) + drift[0], self.second(part) + drift[1]
            for number, (one, two) in enumerate(zip(common + means[0], other + means[1], strict=True)):
                parts = {"reward/first": float(one), "reward/second": float(two)}
                yield TextSample(
                    step=step,
                    table="completions",
                    number=number,
                    group=0,
                    prompt="",
                    completion="",
                    reward=None,
                    components=parts,
                )


def _flat(_: float) -> float:
    return 0.0


TOGETHER = {
    "both stay": Parts(_flat, _flat),
    "both stay, slow noise": Parts(_flat, _flat, keeps=0.9),
    "both rise": Parts(lambda part: 2 * part, lambda part: part, lambda _: 0.3),
    "one rises": Parts(lambda part: 2 * part, _flat),
    "correlation from 0.5 to 0.1": Parts(_flat, _flat, lambda part: 0.5 - 0.4 * part),
    "correlation always -0.4": Parts(_flat, _flat, lambda _: -0.4),
}
APART = {
    "one rises by 1 sd, the other falls by 1": Parts(lambda part: part, lambda part: -part),
    "one jumps by 0.5 sd, the other falls by 0.5": Parts(lambda p: 0.5 * (p > 0.5), lambda p: -0.5 * (p > 0.5)),
    "correlation from 0.5 to -0.5": Parts(_flat, _flat, lambda part: 0.5 - part),
}


def parted(parts: Parts, runs: int) -> float:
    """Return the part of so many runs in which the two are said to part."""
    return sum(bool(reward_conflicts(parts.samples(seed))) for seed in range(runs)) / runs


def disagreements(noise: float, count: int = 20_000, words: int = 500) -> tuple[int, int]:
    """Return how many tokens are probable in an engine, and how many of these the trainer scores far lower.

    The trainer's logits are the engine's, rounded to bfloat16, with noise.
    """
    dice = np.random.default_rng(1)
    logits = dice.normal(0, 4, (count, words)).astype(np.float32)
    other = (logits + dice.normal(0, noise, logits.shape)).astype(np.float32)
    other = ((other.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)
    engine, trainer = (one - np.log(np.exp(one).sum(axis=1, keepdims=True)) for one in (logits, other))
    drawn = (np.exp(engine).cumsum(axis=1) > dice.random((count, 1))).argmax(axis=1)[:, None]
    both = (np.take_along_axis(one, drawn, 1)[:, 0] for one in (engine, trainer))
    first, second = both
    probable = first >= math.log(PROBABLE)
    return int(probable.sum()), int((probable & (first - second > NATS)).sum())


def measure() -> list[Table]:
    """Return the rates."""
    return [_of_texts(), _of_faults(), _of_parts(), _of_tokens()]


def _of_texts() -> Table:
    rows: list[list[Cell]] = []
    for name, make in CLEAN.items():
        rows.append([name, *rates(make(random.Random(1)), TEXTS).values()])
    rows.append(["stated", *(rule.false_alarms for rule in RULES)])
    note = f"Of {TEXTS:,} texts of {_SHORTEST} to {_LONGEST:,} characters each; the prompt is the passage before."
    return Table("Clean texts taken for faulty, of 10,000", ["texts", *(rule.name for rule in RULES)], rows, note)


def _of_faults() -> Table:
    rows: list[list[Cell]] = [[name, PLANTED[name][0], found(name, 1_000)] for name in PLANTED]
    return Table("Planted faults found", ["fault of Python's documentation", "rule", "found"], rows)


def _of_parts() -> Table:
    rows: list[list[Cell]] = [[name, parted(parts, RUNS)] for name, parts in (TOGETHER | APART).items()]
    rows.append(["stated, without a change", FALSE_ALARMS])
    note = f"{RUNS} runs of 100 steps with 16 completions each; the last {len(APART)} part."
    return Table("Parts of the reward that are said to part", ["run", "fraction of runs"], rows, note)


def _of_tokens() -> Table:
    rows: list[list[Cell]] = [[noise, *disagreements(noise)] for noise in (0.0, 0.1, 0.3, 0.5)]
    columns = ["noise of logits (sd)", "tokens with p ≥ 0.5", "2 nats lower in the trainer"]
    return Table("Tokens that rounding to bfloat16 makes differ", columns, rows, "Logits have a deviation of 4.")
