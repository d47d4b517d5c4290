"""Samples as lines of text: what the policy wrote, with its reward."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.view.terminal.lines import fit, line, safe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.insight.samples.sample import Pair, Sample, Samples
    from otel_rl.view.terminal.lines import Line

_LABEL = 14
_LINES_OF_PROMPT, _LINES_OF_COMPLETION = 4, 12
_MOST_LINES = 100_000
_MOST_COMPONENTS = 6


def lines(found: Samples, width: int, *, whole: bool = False) -> list[Line]:
    """Return samples as lines of a terminal; if `whole` is true, long texts are not cut."""
    first, last = (wording.integer(one) for one in found.steps)
    shown = len(found.samples)
    head = f"{wording.count(found.total, 'sample')} of steps {first} to {last}; {shown} of {found.found:,} shown"
    rows = [line((head, "bold")), *(line(("! ", "warning"), safe(one)) for one in found.sentences)]
    for pair in found.samples:
        rows += [line(), *_of_pair(pair, found, width, whole=whole)]
    return rows


def _of_pair(pair: Pair, found: Samples, width: int, *, whole: bool) -> Iterator[Line]:
    yield _head(pair.sample)
    yield from _text("prompt", pair.sample.prompt, width, _MOST_LINES if whole else _LINES_OF_PROMPT)
    most = _MOST_LINES if whole else _LINES_OF_COMPLETION
    yield from _text("completion", pair.sample.completion, width, most)
    if pair.other is not None:
        yield _head(pair.other)
        yield from _text("completion", pair.other.completion, width, most)
    elif found.other_step is not None:
        yield line((f"step {wording.integer(found.other_step)} has no completion of this prompt", "dim"))


def _head(sample: Sample) -> Line:
    numbers = [f"{safe(name)} {wording.number(value)}" for name, value in sample.components.items()]
    more = f" ({', '.join(numbers[:_MOST_COMPONENTS])})" if numbers else ""
    reward = "" if sample.reward is None else f" · reward {wording.number(sample.reward)}"
    group = f" · group {sample.group}" if sample.group >= 0 else ""
    size = wording.count(len(sample.completion), "character")
    return line((f"step {wording.integer(sample.step)}{group} · #{sample.number}{reward}{more} · {size}", "title"))


def _text(label: str, text: str, width: int, most: int) -> Iterator[Line]:
    """Yield the label and the text, wrapped; an empty prompt was not recorded."""
    rows = [row for one in text.split("\n") for row in wrap(safe(one), max(20, width - _LABEL)) or [""]]
    for row in rows[:most] if text or label == "completion" else ():
        yield line((fit(f"  {label}", _LABEL), "dim"), row)
        label = ""
    if len(rows) > most:
        more = f"… {wording.count(len(rows) - most, 'more line')} (--full shows all)"
        yield line(" " * _LABEL, (more, "dim"))
