"""The table of completions: its columns, its groups, its ranks, and what it has where nothing was given."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.convert.completions import completions_table, message_text
from otel_rl.recorder.convert.group_columns import reward_ranks, update_mass_proxy
from otel_rl.recorder.convert.tables import Limits, clean, to_columns
from tests.real_parts import part

torch = part("torch")

COLUMNS = [
    "step",
    "prompt_index",
    "completion_index",
    "group_size",
    "reward_rank_desc",
    "prompt",
    "completion",
    "reward_total",
    "advantage",
    "q_mass",
    "update_weight_raw",
    "update_mass_proxy",
]
PROMPTS = ["p", "q"]
NESTED = [["a", "b", "c"], ["d", "e", "f"]]
FLAT = list("abcdef")
REWARDS = [1.0, 3.0, 3.0, 0.5, 0.0, -1.0]
VALUES = st.floats(-1e300, 1e300)


def same(found: list[object], expected: list[object]) -> bool:
    """Tell whether two columns are equal, NaN and NaN too."""
    return json.dumps(found) == json.dumps(expected)


def test_columns() -> None:
    """The columns are these, in this order, then the components of the reward by name."""
    table = completions_table(3, PROMPTS, NESTED, reward_components={"length": REWARDS, "accuracy": REWARDS})

    assert list(table) == [*COLUMNS, "reward/accuracy", "reward/length"]


def test_rows() -> None:
    """Each completion is a row, with its place in its group and the values that were given for it."""
    table = completions_table(
        3,
        PROMPTS,
        [["a", "b"], ["c"]],
        rewards=[1.0, 3.0, 2.0],
        advantages=[-0.5, 0.5, 0.0],
        q_mass=[0.25, 0.75, 1.0],
        update_weights=[1.0, 3.0, 2.0],
        reward_components={"accuracy": [0.0, 1.0, 1.0]},
    )

    assert list(zip(*table.values(), strict=True)) == [
        (3, 0, 0, 2, 2, "p", "a", 1.0, -0.5, 0.25, 1.0, 0.25, 0.0),
        (3, 0, 1, 2, 1, "p", "b", 3.0, 0.5, 0.75, 3.0, 0.75, 1.0),
        (3, 1, 0, 1, 1, "q", "c", 2.0, 0.0, 1.0, 2.0, 1.0, 1.0),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"prompts": PROMPTS, "completions": NESTED},
        {"prompts": PROMPTS, "completions": NESTED, "group_size": 3},
        {"prompts": PROMPTS, "completions": FLAT},
        {"prompts": PROMPTS, "completions": tuple(FLAT), "group_size": 3},
        {"prompts": ["p", "p", "p", "q", "q", "q"], "completions": FLAT, "group_size": 3},
        {"prompts": np.array(PROMPTS), "completions": np.array(NESTED)},
    ],
)
@pytest.mark.parametrize(
    "rewards",
    [
        REWARDS,
        [REWARDS[:3], REWARDS[3:]],
        np.array(REWARDS),
        np.array(REWARDS).reshape(2, 3),
        torch.tensor(REWARDS),
        torch.tensor(REWARDS).reshape(2, 3),
        [torch.tensor(reward) for reward in REWARDS],
        [np.array(REWARDS[:3]), torch.tensor(REWARDS[3:])],
    ],
)
def test_shapes(given: dict[str, object], rewards: object) -> None:
    """Groups in lists of their own and one flat list make the same table, whatever the shape of the values."""
    table = completions_table(0, **given, rewards=rewards)

    assert table == {
        **table,
        "prompt_index": [0, 0, 0, 1, 1, 1],
        "completion_index": [0, 1, 2, 0, 1, 2],
        "group_size": [3] * 6,
        "prompt": list("pppqqq"),
        "completion": FLAT,
        "reward_total": REWARDS,
        "reward_rank_desc": [3, 1, 2, 1, 2, 3],
    }


def test_one_completion_each() -> None:
    """Different prompts with a completion each are groups of one."""
    table = completions_table(0, PROMPTS, ["a", "b"])

    assert (table["prompt_index"], table["completion_index"], table["group_size"]) == ([0, 1], [0, 0], [1, 1])


def test_unknown_groups() -> None:
    """If prompts repeat and the groups are unknown, indices and ranks are -1, sizes 0 and shares NaN."""
    table = completions_table(0, ["p", "p"], ["a", "b"], rewards=[1, 2], update_weights=[1, 2])

    assert (table["prompt_index"], table["completion_index"], table["group_size"]) == ([-1, -1], [-1, -1], [0, 0])
    assert (table["reward_rank_desc"], table["reward_total"]) == ([-1, -1], [1.0, 2.0])
    assert same(table["update_mass_proxy"], [math.nan, math.nan])


def test_nothing_given() -> None:
    """Values that were not given are NaN, ranks -1."""
    table = completions_table(0, PROMPTS, NESTED)

    assert table["reward_rank_desc"] == [-1] * 6
    assert all(same(table[name], [math.nan] * 6) for name in COLUMNS[7:])


@pytest.mark.parametrize(
    ("rewards", "total", "ranks"),
    [
        ([], [math.nan] * 6, [-1] * 6),
        ([1, 2], [1.0, 2.0, *[math.nan] * 4], [2, 1, -1, -1, -1, -1]),
        ([[1, 2], [5]], [1.0, 2.0, math.nan, 5.0, math.nan, math.nan], [2, 1, -1, 1, -1, -1]),
        ([[1, None, 2]], [1.0, math.nan, 2.0, *[math.nan] * 3], [2, -1, 1, -1, -1, -1]),
        ([1, math.nan, 2], [1.0, math.nan, 2.0, *[math.nan] * 3], [2, 3, 1, -1, -1, -1]),
    ],
)
def test_fewer_rewards(rewards: object, total: list[float], ranks: list[int]) -> None:
    """A completion without a reward has NaN and no rank; one whose reward is NaN has the last rank."""
    table = completions_table(0, PROMPTS, NESTED, rewards=rewards)

    assert same(table["reward_total"], total)
    assert table["reward_rank_desc"] == ranks


def test_empty_groups() -> None:
    """A prompt without completions has no row, but its index is its own."""
    table = completions_table(0, ["p", "q", "r"], [["a"], [], ["b"]], rewards=[[1], [], [2]])

    assert (table["prompt_index"], table["prompt"], table["reward_total"]) == ([0, 2], ["p", "r"], [1.0, 2.0])


def test_no_completions() -> None:
    """Without prompts and completions there are columns and no rows."""
    assert completions_table(0, [], [], rewards=[]) == {name: [] for name in COLUMNS}


@pytest.mark.parametrize("name", ["reasoning_content", "thinking"])
def test_reasoning(name: str) -> None:
    """The policy wrote it too: it is before the answer, also if there is none."""
    assert message_text({name: "2 + 2", "content": "4"}) == "<think>\n2 + 2\n</think>\n4"
    assert message_text({name: "2 + 2", "content": None}) == "<think>\n2 + 2\n</think>\n"
    assert message_text({name: None, "content": "4"}) == "4"


def test_conversations() -> None:
    """A conversation is the text of its messages, an image in it its type."""
    asked = [{"role": "user", "content": [{"type": "image", "image": object()}, {"type": "text", "text": "What?"}]}]
    answers = [[{"role": "assistant", "content": "A cat."}], [{"role": "assistant", "content": None}]]
    table = completions_table(0, [asked], answers, group_size=2)

    assert table["prompt"] == ["user: <image>\nWhat?"] * 2
    assert table["completion"] == ["assistant: A cat.", "assistant: "]
    assert completions_table(0, [asked], [answers])["completion"] == table["completion"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"prompts": ["p"], "completions": NESTED}, "1 prompts and 2 groups"),
        ({"prompts": PROMPTS, "completions": [["a", "b"], ["c"]], "group_size": 2}, r"have \[2, 1\] completions"),
        ({"prompts": PROMPTS, "completions": list("abc")}, "3 completions of 2 prompts"),
        ({"prompts": PROMPTS, "completions": FLAT, "group_size": 4}, "do not form groups of 4"),
        ({"prompts": PROMPTS, "completions": FLAT, "group_size": 2}, "do not form groups of 2"),
        ({"prompts": PROMPTS, "completions": FLAT, "group_size": 0}, "invalid group_size=0"),
        ({"prompts": [], "completions": FLAT}, "6 completions of 0 prompts"),
        ({"prompts": ["p"], "completions": []}, "0 completions of 1 prompts"),
        ({"prompts": list("pqpqpq"), "completions": FLAT, "group_size": 3}, "have different prompts"),
        ({"prompts": "pq", "completions": NESTED}, "prompts is a str"),
        ({"prompts": PROMPTS, "completions": [["a"], "b"]}, "completions hold a list"),
        ({"prompts": [1, 2], "completions": NESTED}, "prompts hold a int"),
        ({"prompts": PROMPTS, "completions": NESTED, "rewards": [1.0] * 7}, "rewards has 7 values for 6"),
        ({"prompts": PROMPTS, "completions": NESTED, "rewards": [[1.0] * 4]}, "rewards has 4 values for 3"),
        ({"prompts": PROMPTS, "completions": NESTED, "rewards": [[1.0]] * 3}, "rewards has 3 groups"),
        ({"prompts": PROMPTS, "completions": NESTED, "rewards": ["x"]}, "rewards hold a str"),
        ({"prompts": PROMPTS, "completions": NESTED, "rewards": [1.0, [2.0]]}, "rewards is a float"),
        ({"prompts": PROMPTS, "completions": NESTED, "rewards": [{}]}, "hold a dict"),
        ({"prompts": PROMPTS, "completions": NESTED, "q_mass": torch.zeros(6, device="meta")}, "q_mass is on meta"),
        (
            {"prompts": PROMPTS, "completions": NESTED, "reward_components": {"f": 1.0}},
            r"reward_components\['f'\] is a",
        ),
    ],
)
def test_inconsistent(given: dict[str, object], text: str) -> None:
    """Inconsistent arguments are refused with the numbers that differ."""
    with pytest.raises(ValueError, match=text):
        completions_table(0, **given)


@pytest.mark.parametrize(
    ("rewards", "ranks"),
    [
        ([], []),
        ([1, 3, 3], [3, 1, 2]),
        ([1, math.nan, 3], [2, 3, 1]),
        ([math.nan, -math.inf, math.nan, math.inf], [3, 2, 4, 1]),
    ],
)
def test_ranks(rewards: list[float], ranks: list[int]) -> None:
    """The highest reward of a group has rank 1, ties go by index, and NaN comes last."""
    assert reward_ranks(rewards) == ranks


@given(st.lists(st.floats()))
def test_ranks_are_all_different(rewards: list[float]) -> None:
    """Each rank is there once, and a higher reward never has a lower place."""
    ranks = reward_ranks(rewards)

    assert sorted(ranks) == list(range(1, len(rewards) + 1))
    assert not any(
        first > second and ranks[i] > ranks[j] for i, first in enumerate(rewards) for j, second in enumerate(rewards)
    )


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ([], []),
        ([1, 3], [0.25, 0.75]),
        ([-1, 3, 1], [0, 0.75, 0.25]),
        ([-1, -3], [0.25, 0.75]),
        ([-1, 0], [1, 0]),
        ([0, 0], [math.nan, math.nan]),
        ([1, math.nan, 3], [0.25, math.nan, 0.75]),
        ([1, math.inf, -math.inf], [1, math.nan, math.nan]),
        ([1e308, 1e308], [0.5, 0.5]),
    ],
)
def test_update_mass(weights: list[float], shares: list[float]) -> None:
    """A sample's share is that of its positive weight, or of its absolute one where none is positive."""
    found = update_mass_proxy(weights)

    assert found == pytest.approx(shares, nan_ok=True)


@given(st.lists(VALUES, min_size=1))
def test_update_mass_is_one(weights: list[float]) -> None:
    """The shares of a group are no less than 0 and are 1 together, unless all weights are zero."""
    found = update_mass_proxy(weights)

    if any(weights):
        assert sum(found) == pytest.approx(1)
        assert min(found) >= 0
    else:
        assert all(map(math.isnan, found))


@given(st.lists(st.lists(st.text(), max_size=4), max_size=4), st.data())
def test_always_a_table(groups: list[list[str]], data: st.DataObject) -> None:
    """Any groups with any number of rewards make columns of one length, which the journal takes."""
    prompts = [f"p{index}" for index in range(len(groups))]
    count = sum(map(len, groups))
    rewards = data.draw(st.lists(st.floats(), max_size=count))
    table = to_columns(completions_table(0, prompts, groups, rewards=rewards, update_weights=rewards))
    cleaned = clean(table, with_text=True, limits=Limits())

    assert {len(cells) for cells in table.values()} == {count}
    assert len(cleaned.rows) == count


def test_imports_nothing_heavy() -> None:
    """Neither tables nor samples import NumPy, torch, pandas or rich."""
    heavy = "{'numpy', 'torch', 'pandas', 'rich'}"
    code = f"import sys, otel_rl.recorder.convert.completions; print(*{heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == ""
