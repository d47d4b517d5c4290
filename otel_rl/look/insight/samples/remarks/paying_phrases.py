"""Finds phrases that earn a reward: words that became frequent, and with which completions get more than without.

A policy that learns a trick repeats it: a phrase that the verifier pays for spreads from a few completions to most. So
a phrase is reported if two things are true. It spread: a fifth of the completions of the last third of the steps have
it, and it was four times as rare in the first third. And it pays: in steps in which some completions have it and some
do not, those with it get a higher reward, by a stratified z test at a chance of 1 in 1,000 over all phrases that spread
(Bonferroni), and by a quarter of the rewards' deviation. A format that the task asks for passes both, too: the reader
decides.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from itertools import pairwise
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.samples.sample import Phrase
from otel_rl.look.insight.samples.selection import REWARD, value_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from otel_rl.look.insight.samples.sample import TextSample

_WORD = re.compile(r"\w+|[^\w\s]+")
_MOST_WORDS = 6
"""The longest phrase that is looked for; longer ones are found by their first words."""
_MOST_OF_TEXT, _MOST_TEXTS = 2_000, 300
"""Characters of a completion that are read, the first and the last ones; completions of each third, for candidates."""
_LEAST_SHARE, _TIMES_RARER = 0.2, 4.0
_CHANCE = 1e-3
_LEAST_GAIN = 0.25
"""The smallest gain, in standard deviations of the reward."""
_LEAST_EACH = 8
"""Completions with a phrase, and without it, in the steps that have both."""
_ALIKE = 0.9
"""A longer phrase replaces a shorter one in it if it is this frequent among those completions."""
_MOST_TESTED, _MOST = 2_000, 3


class _Text(NamedTuple):
    step: int
    sample: TextSample
    words: list[str]


class _Gain(NamedTuple):
    z: float
    reward: float
    without: float


def phrases(samples: Iterable[TextSample]) -> list[Phrase]:
    """Return the phrases that earn a reward, the most frequent first."""
    texts = [_Text(sample.step, sample, _words(sample.completion)) for sample in samples if sample.reward is not None]
    steps = sorted({text.step for text in texts})
    if len(steps) < 3:
        return []
    number = max(1, len(steps) // 3)
    early, late = set(steps[:number]), set(steps[-number:])
    spread = _spread(*(_some([text for text in texts if text.step in third]) for third in (early, late)))
    deviation = _deviation([text.sample.reward or 0.0 for text in texts])
    if not spread or not deviation:
        return []
    least = NormalDist().inv_cdf(1 - _CHANCE / len(spread))
    tested_phrases: list[tuple[Phrase, float]] = []
    tested = _longest(spread)
    begins = {words[:size] for words in tested for size in range(1, len(words) + 1)}
    parts = _phrases_in(texts, begins)
    for words, (share, share_before) in tested.items():
        has = [(text, words in phrases_of) for text, phrases_of in zip(texts, parts, strict=True)]
        gain = _gain(has, REWARD)
        if gain is None or gain.z < least or gain.reward - gain.without < _LEAST_GAIN * deviation:
            continue
        phrase = Phrase(
            text=_as_written(words, texts),
            since=_since(has, share / 2),
            share=share,
            share_before=share_before,
            reward=gain.reward,
            reward_without=gain.without,
            component=_component(has),
        )
        tested_phrases.append((phrase, gain.z))
    tested_phrases.sort(key=lambda entry: (-round(entry[0].share, 1), -entry[1]))
    return [phrase for phrase, _ in _apart(tested_phrases)][:_MOST]


def _as_written(words: Sequence[str], texts: Sequence[_Text]) -> str:
    """Return a phrase in lower case as the last text that has it writes it, so that it is found by its text.

    Signs at its ends are left out.
    """
    spoken = [n for n, word in enumerate(words) if any(map(str.isalnum, word))]
    words = words[spoken[0] : spoken[-1] + 1]
    written = re.compile(r"\s*".join(map(re.escape, words)))
    matches = (written.search(text.sample.completion.lower()) for text in reversed(texts))
    return next((" ".join(match[0].split()) for match in matches if match), " ".join(words))


def _some(texts: Sequence[_Text]) -> Sequence[_Text]:
    return texts[:: max(1, math.ceil(len(texts) / _MOST_TEXTS))]


def _words(text: str) -> list[str]:
    half = _MOST_OF_TEXT // 2
    parts = (text,) if len(text) <= _MOST_OF_TEXT else (text[:half], text[-half:])
    return [word for part in parts for word in _WORD.findall(part.lower())]


def _spread(before: Sequence[_Text], after: Sequence[_Text]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return the phrases that spread, with their shares at the end and at the beginning, the most frequent first."""
    frequent = _frequent(after, _LEAST_SHARE * len(after))
    rare = Counter(phrase for phrases_of in _phrases_in(before, frequent) for phrase in phrases_of)
    shares = {phrase: (n / len(after), rare[phrase] / len(before)) for phrase, n in frequent.items()}
    spread = {phrase: both for phrase, both in shares.items() if both[0] >= _TIMES_RARER * both[1]}
    return dict(sorted(spread.items(), key=lambda entry: (-entry[1][0], entry[0]))[:_MOST_TESTED])


def _frequent(texts: Sequence[_Text], least: float) -> dict[tuple[str, ...], int]:
    """Return the phrases that so many texts have: as many at least have the begin and the end of each."""
    frequent: dict[tuple[str, ...], int] = {}
    firsts = Counter(word for text in texts for word in set(text.words))
    starts = [[at for at, word in enumerate(text.words) if firsts[word] >= least] for text in texts]
    for size in range(1, _MOST_WORDS + 1):
        of_texts = [_grams(text.words, places, size) for text, places in zip(texts, starts, strict=True)]
        counts = Counter(phrase for grams in of_texts for phrase in set(grams.values()))
        frequent |= {phrase: n for phrase, n in counts.items() if n >= least}
        kept = [{at for at, phrase in grams.items() if phrase in frequent} for grams in of_texts]
        starts = [[at for at in places if at + 1 in places] for places in kept]
    return frequent


def _grams(words: Sequence[str], starts: Iterable[int], size: int) -> dict[int, tuple[str, ...]]:
    every = list(zip(*(words[begin:] for begin in range(size)), strict=False))
    return {at: every[at] for at in starts if at < len(every)}


def _phrases_in(texts: Sequence[_Text], frequent: Collection[tuple[str, ...]]) -> list[set[tuple[str, ...]]]:
    """Return which of the frequent phrases each text has; the begins of each of them are frequent too."""
    firsts = {phrase[0] for phrase in frequent}
    phrases_of: list[set[tuple[str, ...]]] = [set() for _ in texts]
    for text, phrases_of_text in zip(texts, phrases_of, strict=True):
        starts: Iterable[int] = [at for at, word in enumerate(text.words) if word in firsts]
        for size in range(1, _MOST_WORDS + 1):
            grams = {at: phrase for at, phrase in _grams(text.words, starts, size).items() if phrase in frequent}
            phrases_of_text.update(grams.values())
            starts = grams
    return phrases_of


def _longest(spread: dict[tuple[str, ...], tuple[float, float]]) -> dict[tuple[str, ...], tuple[float, float]]:
    """Leave out phrases that are nearly always inside a longer one, and those without a letter or a digit."""
    inside: set[tuple[str, ...]] = set()
    for words, (share, _) in spread.items():
        for part in (words[1:], words[:-1]):
            if part in spread and share >= _ALIKE * spread[part][0]:
                inside.add(part)
    return {
        words: both
        for words, both in spread.items()
        if words not in inside and any(character.isalnum() for word in words for character in word)
    }


def _gain(has: Sequence[tuple[_Text, bool]], by: str) -> _Gain | None:
    """Return by how much more completions with a phrase get, in steps in which others lack it; `None` if too few do."""
    of_step: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for text, has_phrase in has:
        if (value := value_of(text.sample, by)) is not None:
            of_step[text.step][not has_phrase].append(value)
    both = [(given, lacking) for given, lacking in of_step.values() if given and lacking]
    given, lacking = ([value for pair in both for value in pair[n]] for n in (0, 1))
    if min(len(given), len(lacking)) < _LEAST_EACH:
        return None
    difference, variance, whole = 0.0, 0.0, 0.0
    for first, second in both:
        weight = len(first) * len(second) / (len(first) + len(second))
        difference += weight * (fmean(first) - fmean(second))
        variance += weight * _deviation([*first, *second]) ** 2
        whole += weight
    z = difference / math.sqrt(variance) if variance else math.inf if difference > 0 else 0.0
    without = fmean(lacking)
    return _Gain(z, without + difference / whole, without)


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    middle = fmean(values)
    return math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


def _since(has: Sequence[tuple[_Text, bool]], share: float) -> int:
    """Return the first step from which on at least this share of the completions have a phrase, in every step."""
    of_step: dict[int, list[bool]] = defaultdict(list)
    for text, has_phrase in has:
        of_step[text.step].append(has_phrase)
    since = max(of_step)
    for step in sorted(of_step, reverse=True):
        if fmean(of_step[step]) < share:
            break
        since = step
    return since


def _component(has: Sequence[tuple[_Text, bool]]) -> str:
    """Return the recorded number that differs the most between completions with a phrase and without, by its z."""
    names = sorted({name for text, _ in has for name in text.sample.components})
    gains = {name: gain.z for name in names if (gain := _gain(has, name)) is not None}
    return max(gains, key=lambda name: gains[name]) if gains and max(gains.values()) > 0 else ""


def _apart(phrases_with_z: Sequence[tuple[Phrase, float]]) -> Iterator[tuple[Phrase, float]]:
    """Yield the phrases that share no two neighboring words with one before, or are single words of none."""
    seen: set[str] = set()
    for phrase, z in phrases_with_z:
        words = phrase.text.split(" ")
        pairs = {" ".join(pair) for pair in pairwise(words)} or {phrase.text}
        if not pairs & seen and not any(phrase.text in other.split(" ") for other in seen):
            yield phrase, z
        seen |= pairs
