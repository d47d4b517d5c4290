"""The table of completions, with their prompts, rewards, advantages and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.convert.group_columns import reward_ranks, update_mass_proxy
from otel_rl.recorder.convert.tables import device_of, to_list

if TYPE_CHECKING:
    from otel_rl.export import Cell

_REASONING = ("reasoning_content", "thinking")
"""Names of what a model thought before it answered, in messages of Transformers."""
Value = float | None
"""A value of a completion; `None` if it was not given, which differs from NaN."""


def completions_table(
    step: int,
    prompts: Sequence[object],
    completions: Sequence[object],
    *,
    group_size: int | None = None,
    rewards: object = None,
    advantages: object = None,
    reward_components: Mapping[str, object] | None = None,
    q_mass: object = None,
    update_weights: object = None,
) -> dict[str, list[Cell]]:
    """Return the columns of the table of completions, one row for each completion, in the order given.

    The columns are `step`, `prompt_index`, `completion_index` (inside its group), `group_size`, `reward_rank_desc` (1
    is the highest reward of the group), `prompt`, `completion`, `reward_total`, `advantage`, `q_mass`,
    `update_weight_raw`, `update_mass_proxy` and `reward/<name>` for each component, by name.

    A text is a `str`, or a conversation: a list of messages with `role` and `content`. Values are lists, NumPy arrays
    or torch tensors in host memory, shaped `(prompts, group)` or `(prompts · group,)` whatever the shape of the
    completions; the last ones may be missing. A missing value is NaN, a missing rank -1.

    Args:
        step: Iteration of the RL loop.
        prompts: One text for each group, or, if the completions are flat, one for each completion.
        completions: A list of texts for each prompt, or all of them in one list, group by group.
        group_size: The number of completions per prompt, for a flat list. By default, completions are divided evenly
            among the prompts. If there are as many prompts as completions, each completion is its own group; if such
            prompts repeat, the groups are unknown: indices are -1 and sizes 0.
        rewards: Total reward of each completion.
        advantages: Advantage of each completion.
        reward_components: The components of the total reward, by name.
        q_mass: Probability of each completion under the target distribution of its group.
        update_weights: Weight of each completion in the update; `update_mass_proxy` is its share in its group.

    Raises:
        ValueError: The numbers of prompts, completions and values do not match, or a value is not a number or is on a
            device.
    """
    groups = _groups(_texts("prompts", prompts), completions, group_size)
    total = _spread("rewards", rewards, groups)
    weights = _spread("update_weights", update_weights, groups)
    table: dict[str, Sequence[Cell]] = {
        "step": [step] * len(groups.completions),
        "prompt_index": [index if groups.known else -1 for index, size in enumerate(groups.sizes) for _ in range(size)],
        "completion_index": [index if groups.known else -1 for size in groups.sizes for index in range(size)],
        "group_size": [size if groups.known else 0 for size in groups.sizes for _ in range(size)],
        "reward_rank_desc": [rank for group in groups.split(total) for rank in _ranks(group, groups.known)],
        "prompt": groups.prompts,
        "completion": groups.completions,
        "reward_total": _numbers(total),
        "advantage": _numbers(_spread("advantages", advantages, groups)),
        "q_mass": _numbers(_spread("q_mass", q_mass, groups)),
        "update_weight_raw": _numbers(weights),
        "update_mass_proxy": [
            share
            for group in groups.split(weights)
            for share in (update_mass_proxy(_numbers(group)) if groups.known else [math.nan] * len(group))
        ],
    }
    for name, component in sorted((reward_components or {}).items()):
        table[f"reward/{name}"] = _numbers(_spread(f"reward_components[{name!r}]", component, groups))
    return {name: list(cells) for name, cells in table.items()}


class _Groups(msgspec.Struct, frozen=True):
    """Prompts and completions, and the size of each group; if groups are unknown, each completion is one."""

    prompts: list[str]
    completions: list[str]
    sizes: list[int]
    known: bool = True

    def split(self, values: Sequence[Value]) -> list[Sequence[Value]]:
        return [values[end - size : end] for end, size in zip(accumulate(self.sizes), self.sizes, strict=True)]


def _groups(prompts: list[str], completions: object, group_size: int | None) -> _Groups:
    items = to_list("completions", completions)
    if group_size is not None and group_size < 1:
        raise ValueError(f"invalid group_size={group_size}: must be at least 1, the number of completions per prompt")
    if items and all(isinstance(item, (list, tuple)) for item in items) and not any(map(_is_conversation, items)):
        groups = [_texts("a group of completions", group) for group in items]
        return _nested(prompts, groups, group_size)
    return _flat(prompts, _texts("completions", items), group_size)


def _nested(prompts: list[str], groups: list[list[str]], group_size: int | None) -> _Groups:
    sizes = list(map(len, groups))
    if len(prompts) != len(groups):
        raise ValueError(f"{len(prompts)} prompts and {len(groups)} groups of completions")
    if group_size is not None and set(sizes) != {group_size}:
        raise ValueError(f"group_size is {group_size}, but the groups have {sizes} completions")
    asked = [prompt for prompt, size in zip(prompts, sizes, strict=True) for _ in range(size)]
    return _Groups(asked, [text for group in groups for text in group], sizes)


def _flat(prompts: list[str], completions: list[str], group_size: int | None) -> _Groups:
    count = len(completions)
    if group_size is None:
        if len(prompts) == count:
            return _Groups(prompts, completions, [1] * count, known=len(set(prompts)) == count)
        group_size = count // len(prompts) if prompts and count else 1
    whole = count // group_size
    if whole * group_size != count or len(prompts) not in (whole, count):
        raise ValueError(f"{count} completions of {len(prompts)} prompts do not form groups of {group_size}")
    if len(prompts) != count:
        return _Groups([prompt for prompt in prompts for _ in range(group_size)], completions, [group_size] * whole)
    for start in range(0, count, group_size):
        if len(set(prompts[start : start + group_size])) > 1:
            raise ValueError(f"the {group_size} completions from {start} on are one group but have different prompts")
    return _Groups(prompts, completions, [group_size] * whole)


def _texts(what: str, values: object) -> list[str]:
    return [_text(what, item) for item in to_list(what, values)]


def _text(what: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if _is_conversation(value):
        return "\n".join(f"{message.get('role')}: {message_text(message)}" for message in value)  # type: ignore[attr-defined] # it is
    raise ValueError(f"{what} hold a {type(value).__name__} where a text or a conversation is expected")


def message_text(message: Mapping[str, object]) -> str:
    """Return the text of a message, after its reasoning; other parts, such as images, are represented by their type."""
    content = message.get("content")
    parts = content if isinstance(content, (list, tuple)) else [content or ""]
    text = "\n".join(_part_text(part) for part in parts)
    reasoning = next((thought for name in _REASONING if isinstance(thought := message.get(name), str) and thought), "")
    return f"<think>\n{reasoning}\n</think>\n{text}" if reasoning else text


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        text = part.get("text")
        return text if isinstance(text, str) else f"<{part.get('type')}>"
    return f"<{type(part).__name__}>"


def _is_conversation(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _spread(what: str, values: object, groups: _Groups) -> list[Value]:
    """Return one value per completion; `None` if it was not given."""
    items = [] if values is None else to_list(what, values)
    if not any(isinstance(item, (list, tuple)) or getattr(item, "ndim", 0) for item in items):
        return _padded(what, items, len(groups.completions))
    if not groups.known or len(items) > len(groups.sizes):
        raise ValueError(f"{what} has {len(items)} groups, which do not match the groups of completions")
    nested = [to_list(what, item) for item in items]
    nested += [[]] * (len(groups.sizes) - len(nested))
    return [value for group, size in zip(nested, groups.sizes, strict=True) for value in _padded(what, group, size)]


def _padded(what: str, values: list[object], size: int) -> list[Value]:
    if len(values) > size:
        raise ValueError(f"{what} has {len(values)} values for {size} completions")
    return [_value(what, value) for value in values] + [None] * (size - len(values))


def _value(what: str, value: object) -> Value:
    if value is None or type(value) is float:
        return value
    if device := device_of(value):
        raise ValueError(f"{what} hold a value on {device}, and reading it would make the trainer wait")
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)  # type: ignore[arg-type] # what cannot be converted raises
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise ValueError(f"{what} hold a {type(value).__name__} where a number is expected")


def _numbers(values: Sequence[Value]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _ranks(values: Sequence[Value], known: bool) -> list[int]:
    given = [index for index, value in enumerate(values) if value is not None and known]
    ranks = dict(zip(given, reward_ranks([values[index] for index in given]), strict=True))  # type: ignore[misc] # given
    return [ranks.get(index, -1) for index in range(len(values))]
