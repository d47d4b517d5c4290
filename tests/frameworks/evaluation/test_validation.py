"""Samples in the terminal: which are chosen, how rewards are drawn, and that no text of a model breaks it."""

from __future__ import annotations

import io
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.frameworks.evaluation.printing import Bar, bars, choose, marker, print_message_log_samples, print_samples

NASTY = st.one_of(
    st.text(),
    st.text(st.sampled_from("[]/\\ab=#@ \n\r\t\x00\x07\x1b\x9b\u202e\u2028\ud800\udcff🔥é")),
    st.sampled_from(["[/", "[bold]", "[/bold]", "[link=x]y", "\x1b[31m", "\x1b]0;title\x07", ":fire:", "[@click=f]"]),
)


def printed(logs: list[object], rewards: object, n: int = 5, width: int = 60, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_samples(logs, rewards, n, 7, file=file, width=width)
    file.flush()
    return raw.getvalue().decode(encoding)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def conversation(asked: str, answered: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]


SNAPSHOT = """\
───────────────────── TRAINING STEP 7 ──────────────────────
╭─────────────────── Reward Statistics ────────────────────╮
│ Total samples: 5                                         │
│ Average reward: 0.1600                                   │
│ Min: -1.0000 | Max: 1.0000                               │
│ 🔴 -1.0000 ██████████ (1)                                │
│ 🟠 -0.5000 ██████████ (1)                                │
│ ✨  0.3000 ██████████ (1)                                │
│ 🔥  1.0000 ████████████████████ (2)                      │
╰──────────────────────────────────────────────────────────╯
╭────────────── 🔥 Sample 1 | Reward: 1.0000 ──────────────╮
│ SYSTEM                                                   │
│ Be brief.                                                │
│                                                          │
│ USER                                                     │
│ What is 1 + 1?                                           │
│                                                          │
│ ASSISTANT                                                │
│ 2                                                        │
╰──────────────────────────────────────────────────────────╯
╭───────────── 🔴 Sample 2 | Reward: -1.0000 ──────────────╮
│ USER                                                     │
│ What is 2 + 2?                                           │
│                                                          │
│ ASSISTANT                                                │
│ I think                                                  │
│ it is 5                                                  │
╰──────────────────────────────────────────────────────────╯
╭────────────── ✨ Sample 3 | Reward: 0.3000 ──────────────╮
│ USER                                                     │
│ What is 3 + 3?                                           │
│                                                          │
│ ASSISTANT                                                │
│ [bold]6[/bold]                                           │
╰──────────────────────────────────────────────────────────╯
────────────────────── End of Samples ──────────────────────
"""


def test_layout() -> None:
    """The whole print is this, to the character."""
    logs = [
        [{"role": "system", "content": "Be brief."}, *conversation("What is 1 + 1?", "2")],
        conversation("What is 2 + 2?", "I think\nit is 5"),
        conversation("What is 3 + 3?", "[bold]6[/bold]"),
        conversation("What is 4 + 4?", "8"),
        conversation("What is 5 + 5?", "eleven"),
    ]

    assert printed(logs, [1.0, -1.0, 0.3, 1.0, -0.5], n=3) == SNAPSHOT


@pytest.mark.parametrize(
    ("rewards", "n", "expected"),
    [
        ([5, 1, 9, 3, 7, 2, 8, 4, 6], 3, [2, 1, 0]),
        ([5, 1, 9, 3, 7, 2, 8, 4, 6], 4, [2, 6, 5, 1]),
        ([5, 1, 9, 3, 7, 2, 8, 4, 6], 1, [0]),
        ([5, 1, 9], 3, [0, 1, 2]),
        ([5, 1, 9], 10, [0, 1, 2]),
        ([5, 1, 9], 0, []),
        ([5, 1, 9], -1, []),
        ([], 3, []),
        ([math.nan, 1.0, math.nan, 2.0], 2, [3, 2]),
        ([1.0, 1.0, 1.0, 1.0], 2, [0, 3]),
    ],
)
def test_choice(rewards: list[float], n: int, expected: list[int]) -> None:
    """All are shown in order if they are few; else the best, the worst, and the middle one if `n` is odd."""
    assert choose(rewards, n) == expected


@given(st.lists(st.floats()), st.integers(-2, 30))
def test_choice_is_of_different_samples(rewards: list[float], n: int) -> None:
    """As many different samples are chosen as were asked for and are there."""
    chosen = choose(rewards, n)

    assert len(set(chosen)) == len(chosen) == min(max(n, 0), len(rewards))
    assert set(chosen) <= set(range(len(rewards)))


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (math.inf, "🔥"),
        (0.7, "🔥"),
        (math.nextafter(0.7, 0), "✨"),
        (0.3, "✨"),
        (math.nextafter(0.3, 0), "🟠"),
        (-0.5, "🟠"),
        (math.nextafter(-0.5, -1), "🔴"),
        (-math.inf, "🔴"),
        (math.nan, "❔"),
    ],
)
def test_markers(reward: float, expected: str) -> None:
    """A reward has the marker of the highest boundary that it reaches."""
    assert marker(reward)[0] == expected


def test_few_distinct_rewards() -> None:
    """Up to 20 distinct rewards have a bar each, ascending; NaN has none."""
    assert bars([1.0, 0.0, 1.0, math.nan, math.inf]) == [Bar(0, 0, 1), Bar(1, 1, 2), Bar(math.inf, math.inf, 1)]
    assert len(bars([float(value) for value in range(20)])) == 20


def test_many_distinct_rewards() -> None:
    """More than 20 distinct rewards are 20 bins of one width, the greatest one in the last."""
    found = bars([index / 2 for index in range(41)])

    assert [bar.low for bar in found] == [float(index) for index in range(20)]
    assert [bar.count for bar in found] == [2] * 19 + [3]
    assert found[-1].high == 20


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), unique=True, min_size=21))
def test_bins_lose_nothing(rewards: list[float]) -> None:
    """Whatever the range of the rewards, each finite one is in a bin."""
    assert sum(bar.count for bar in bars([*rewards, math.nan, math.inf])) == len(rewards)


def test_many_rewards_few_lines() -> None:
    """Ten thousand different rewards are as many lines as a screen has."""
    text = printed([""] * 10_000, [index / 10_000 for index in range(10_000)], n=1)

    assert len(text.splitlines()) < 40


def test_width_of_bars() -> None:
    """The longest bar has 20 characters, others in proportion, and none that stands for something is empty."""
    text = printed([""] * 151, [0.0] * 100 + [1.0] * 50 + [2.0], n=1)

    assert [len(bar) for bar in re.findall("█+", text)] == [20, 10, 1]


def test_statistics() -> None:
    """The average is that of the finite rewards; those that are not are counted."""
    text = printed([""] * 4, [1.0, 0.5, math.nan, math.inf])

    assert "Total samples: 4" in text
    assert "Average reward: 0.7500" in text
    assert "Min: 0.5000 | Max: inf" in text
    assert "Not finite, and not in the average: 2" in text


@pytest.mark.parametrize("rewards", [[math.nan, math.nan], [], [None, "x"], np.array([math.nan] * 2), [object()] * 9])
def test_no_rewards(rewards: object) -> None:
    """Samples without a reward that is a number are shown all the same."""
    text = printed(["first", "second"], rewards)

    assert "Average reward: nan" in text
    assert text.count("| Reward: nan") == 2
    assert "second" in text


def test_array_of_rewards() -> None:
    """Rewards may be an array."""
    assert "Sample 1 | Reward: 0.2500" in printed(["a"], np.array([0.25], dtype=np.float32))
    assert "Sample 1 | Reward: 0.2500" in printed(["a"], np.float32(0.25))


def test_nothing_asked_for() -> None:
    """With 0 samples nothing is printed."""
    assert printed(["a"], [1.0], n=0) == ""


def test_nothing_there() -> None:
    """Without samples there is one line that says so."""
    assert printed([], []) == "⚠ no samples to show at step 7\n"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (("asked", "answered"), ["USER", "asked", "ASSISTANT", "answered"]),
        ("answered", ["ASSISTANT", "answered"]),
        ([{"content": "who"}], ["UNKNOWN", "who"]),
        ([{"role": "tool", "content": [{"type": "text", "text": "4"}, {"type": "image"}]}], ["TOOL", "4", "<image>"]),
        ([{"role": "assistant", "content": None}], ["ASSISTANT"]),
        ([3, "loose"], ["UNKNOWN", "<int>", "loose"]),
        (3, ["UNKNOWN", "<int>"]),
        ([], ["Sample 1"]),
    ],
)
def test_messages(log: object, shown: list[str]) -> None:
    """Input and output of a sample are both shown, with their roles, however they are held."""
    text = printed([log], [1.0])

    assert all(part in text for part in shown)


def test_roles_have_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of different roles have different colors, on a terminal alone."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    print_samples([conversation("asked", "answered")], [1.0], file=terminal)

    assert "\x1b[36masked" in terminal.getvalue()
    assert "\x1b[32manswered" in terminal.getvalue()
    assert "\x1b" not in printed([conversation("asked", "answered")], [1.0])


@given(NASTY, NASTY, NASTY)
def test_any_text(role: str, asked: str, answered: str) -> None:
    """No text breaks the print, steers the terminal, or is taken for markup."""
    text = printed([[{"role": role, "content": asked}, {"role": "assistant", "content": answered}]], [1.0], width=400)

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    assert text.count("Sample 1 | Reward: 1.0000") == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[/", "[/"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
        ("[link=https://x]y[/link]", "[link=https://x]y[/link]"),
        (":fire:", ":fire:"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("bell\x07", "bell\\x07"),
        ("half \ud800", "half \\ud800"),
        ("turned \u202e", "turned \\u202e"),
        ("over\rwritten", "over\\rwritten"),
        ("windows\r\nline", "windows"),
    ],
)
def test_literal(text: str, shown: str) -> None:
    """Markup is shown as it is, and control characters are escaped."""
    assert f"│ {shown} " in printed([text], [1.0])


def test_ascii_terminal() -> None:
    """A terminal that knows ASCII alone gets escapes, not an exception."""
    text = printed(["café 🔥"], [1.0], encoding="ascii")

    assert "caf\\xe9 \\U0001f525" in text
    assert "+--" in text


def test_huge_text() -> None:
    """Of a huge text there is the beginning, and how much more there is."""
    text = printed(["x" * 1_000_000], [1.0], width=200)

    assert "[983616 characters more]" in text
    assert text.count("x") < 20_000


def test_nemo_entry(capsys: pytest.CaptureFixture[str]) -> None:
    """NeMo-RL's function prints to standard output."""
    print_message_log_samples([conversation("asked", "answered")], [1.0], num_samples=1, step=3)
    text = capsys.readouterr().out

    assert "TRAINING STEP 3" in text
    assert "answered" in text


def test_nemo_entry_with_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Without samples NeMo-RL's function prints one line."""
    print_message_log_samples([], [])

    assert capsys.readouterr().out.splitlines() == ["⚠ no samples to show at step 0"]


def test_nemo_entry_unequal() -> None:
    """NeMo-RL's function requires as many rewards as samples; `print_samples` prints the ones given."""
    with pytest.raises(AssertionError, match="2 samples and 1 rewards"):
        print_message_log_samples(["a", "b"], [1.0])

    assert "Sample 2 | Reward: nan" in printed(["a", "b"], [1.0])
