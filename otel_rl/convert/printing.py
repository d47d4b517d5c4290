"""Validation samples in the terminal: the distribution of rewards, and some conversations with their rewards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from otel_rl.convert.completions import message_text
from otel_rl.convert.tables import Limits, cut
from otel_rl.errors.sinks import lines as lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BARS = 20
_BAR_WIDTH = 20
_MARKERS = ((0.7, "🔥", "bright_green"), (0.3, "✨", "green"), (-0.5, "🟠", "orange3"))
_LOWEST_MARKER = ("🔴", "red")
_UNKNOWN_MARKER = ("❔", "bright_black")
_ROLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}
_OTHER_ROLE = "blue"


class Bar(msgspec.Struct, frozen=True):
    """A bar of the histogram: the number of rewards with one value, or in a range.

    `high` is exclusive unless it equals `low` or the bar is the last one.
    """

    low: float
    high: float
    count: int


def print_samples(
    message_logs: Sequence[object],
    rewards: Sequence[object],
    num_samples: int = 5,
    step: int = 0,
    *,
    console: Console | None = None,
) -> None:
    """Print statistics of the rewards, and the samples that `choose` selects.

    Markup in the texts is not interpreted; control characters and invalid Unicode are escaped. Rewards on a device are
    read, so call it where the trainer waits for the device anyway.

    Args:
        message_logs: For each sample, a list of messages with `role` and `content`, or a pair of prompt and completion,
            or one text.
        rewards: Reward of each sample; a missing one is NaN.
        num_samples: The largest number of samples to print; 0 prints nothing.
        step: Iteration of the RL loop.
        console: The console to print to; by default standard output.
    """
    if num_samples <= 0:
        return
    screen = Console() if console is None else console
    printable = partial(_printable, screen.encoding)
    logs = list(message_logs)
    if not logs:
        screen.print(printable(f"⚠ no samples to show at step {step}", "yellow"))
        return
    given = rewards.tolist() if hasattr(rewards, "tolist") else rewards
    values = [_number(reward) for reward in (given if isinstance(given, (list, tuple)) else [given])]
    values = (values + [math.nan] * len(logs))[: len(logs)]
    screen.rule(printable(f"TRAINING STEP {step}", "bold"))
    screen.print(_statistics(values, printable))
    for number, index in enumerate(choose(values, num_samples), 1):
        screen.print(_sample(number, logs[index], values[index], printable))
    screen.rule(printable("End of Samples", "bold"))


def print_message_log_samples(
    message_logs: Sequence[object], rewards: Sequence[object], num_samples: int = 5, step: int = 0
) -> None:
    """Print samples like `print_samples`, with the name and the arguments of NeMo-RL's function.

    Raises:
        AssertionError: The numbers of rewards and samples differ.
    """
    if len(message_logs) != len(rewards):
        raise AssertionError(f"{len(message_logs)} samples and {len(rewards)} rewards")
    print_samples(message_logs, rewards, num_samples, step)


def choose(rewards: Sequence[float], n: int) -> list[int]:
    """Return the indices of the samples to print: all in order if there are at most `n`.

    Otherwise they are the `n // 2` best ones in descending order, the median if `n` is odd, and the `n // 2` worst ones
    in descending order. NaN is worse than any number.
    """
    if n >= len(rewards):
        return list(range(len(rewards)))
    keys = [(math.isnan(reward), 0.0 if math.isnan(reward) else -reward) for reward in rewards]
    order = sorted(range(len(rewards)), key=keys.__getitem__)
    half = max(n, 0) // 2
    middle = [order[len(order) // 2]] if n > 0 and n % 2 else []
    return order[:half] + order[len(order) - half :] + middle


def bars(rewards: Sequence[float]) -> list[Bar]:
    """Return one bar per distinct reward, ascending; if there are more than 20, 20 bins of equal width.

    NaN has no bar. Bins leave out infinities too.
    """
    counts = Counter(reward for reward in rewards if not math.isnan(reward))
    if len(counts) <= _BARS:
        return [Bar(value, value, counts[value]) for value in sorted(counts)]
    finite = {value: count for value, count in counts.items() if math.isfinite(value)}
    low, high = min(finite), max(finite)
    edges = [low + (high / _BARS - low / _BARS) * index for index in range(_BARS)] + [high]
    heights = [0] * _BARS
    for value, count in finite.items():
        place = (value / 2 - low / 2) / (high / 2 - low / 2)  # the difference itself can overflow
        heights[min(int(place * _BARS), _BARS - 1)] += count
    return [Bar(edges[index], edges[index + 1], height) for index, height in enumerate(heights)]


def marker(reward: float) -> tuple[str, str]:
    """Return the emoji and the color of a reward, with limits at 0.7, 0.3 and -0.5; NaN has its own."""
    if math.isnan(reward):
        return _UNKNOWN_MARKER
    return next(((emoji, color) for least, emoji, color in _MARKERS if reward >= least), _LOWEST_MARKER)


def _printable(encoding: str, literal: str, style: str = "") -> Text:
    """Return a text as a terminal of this encoding can show it."""
    return Text(lines_of(literal).encode(encoding, "backslashreplace").decode(encoding), style)


def _statistics(rewards: Sequence[float], printable: Callable[..., Text]) -> Panel:
    known = [reward for reward in rewards if not math.isnan(reward)]
    finite = [reward for reward in known if math.isfinite(reward)]
    average = sum(reward / len(finite) for reward in finite) if finite else math.nan
    lines = [
        printable(f"Total samples: {len(rewards)}"),
        printable(f"Average reward: {average:.4f}"),
        printable(f"Min: {min(known, default=math.nan):.4f} | Max: {max(known, default=math.nan):.4f}"),
    ]
    if len(finite) < len(rewards):
        lines.append(printable(f"Not finite, and not in the average: {len(rewards) - len(finite)}", "yellow"))
    lines += _chart(bars(rewards), printable)
    return Panel(Group(*lines), title=printable("Reward Statistics", "bold"), box=box.ROUNDED)


def _chart(found: Sequence[Bar], printable: Callable[..., Text]) -> list[Text]:
    values = [f"{bar.low:.4f}" if bar.low == bar.high else f"{bar.low:.4f} … {bar.high:.4f}" for bar in found]
    width = max(map(len, values), default=0)
    most = max((bar.count for bar in found), default=0)
    lines = []
    for bar, value in zip(found, values, strict=True):
        emoji, color = marker(bar.low)
        length = max(bar.count * _BAR_WIDTH // most, 1) if bar.count else 0
        row = (f"{emoji} {value:>{width}} ", ""), ("█" * length, color), (f" ({bar.count})", "")
        lines.append(Text.assemble(*(printable(part, style) for part, style in row)))
    return lines


def _sample(number: int, log: object, reward: float, printable: Callable[..., Text]) -> Panel:
    emoji, color = marker(reward)
    lines: list[Text] = []
    for role, content in _messages(log):
        style = _ROLES.get(role.lower(), _OTHER_ROLE)
        lines += [printable(role.upper(), f"bold {style}"), printable(cut(content, Limits().text), style), Text()]
    title = printable(f"{emoji} Sample {number} | Reward: {reward:.4f}", "bold")
    return Panel(Group(*lines[:-1]), title=title, border_style=color, box=box.ROUNDED)


def _messages(log: object) -> list[tuple[str, str]]:
    if isinstance(log, str):
        return [("assistant", log)]
    if not isinstance(log, (list, tuple)):
        return [("unknown", f"<{type(log).__name__}>")]
    if len(log) == 2 and all(isinstance(text, str) for text in log):
        return [("user", log[0]), ("assistant", log[1])]
    return [
        (str(message.get("role", "unknown")), message_text(message))
        if isinstance(message, Mapping)
        else ("unknown", message if isinstance(message, str) else f"<{type(message).__name__}>")
        for message in log
    ]


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type] # what cannot be converted raises
    except Exception:  # conversions of unknown objects can raise anything
        return math.nan
