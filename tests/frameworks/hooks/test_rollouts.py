"""Trajectories in the batches of frameworks; `tests/frameworks` compares them with what real frameworks hold."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import otel_rl
from otel_rl.frameworks.rollouts import RolloutBatch, ScoredRollout, pieces_of, record, run_with_texts, turns
from otel_rl.frameworks.trinity import _parted
from otel_rl.frameworks.trl_rollouts import rollouts_of
from otel_rl.recorder.journal.records import Record, Wrote


def letters(tokens: Sequence[int], **_: object) -> str:
    """Return a letter for each token."""
    return "".join(chr(96 + token) for token in tokens)


TOKENIZER = SimpleNamespace(decode=letters)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ([1, 1, 1, 1], "abcd"),
        ([0, 0, 0, 0], "abcd"),
        ([1, 0, 0, 1], [("assistant", "a"), ("tool", "bc"), ("assistant", "d")]),
        ([True, True, False, False], [("assistant", "ab"), ("tool", "cd")]),
    ],
)
def test_runs_of_a_mask_are_messages(mask: list[int], expected: object) -> None:
    """Tokens that the policy did not write are a tool's; a completion that is one run is a text."""
    found: Any = turns([1, 2, 3, 4], mask, letters)

    assert (found if isinstance(found, str) else [(one["role"], one["content"]) for one in found]) == expected


def padded(width: int, left: int) -> dict[str, torch.Tensor]:
    """Return a batch with one trajectory "ab" → "cde", of which "d" is a tool's, with padding on both sides.

    Tensors of tokens that are generated have the last `width` columns.
    """
    around = [0] * left, [0] * (7 - left - 5)
    full = {
        "tokens": [1, 2, 3, 4, 5],
        "attention": [1, 1, 1, 1, 1],
        "written": [0, 0, 1, 0, 1],
        "advantages": [0.0, 0.0, 1.0, 7.0, 2.0],
        "logprobs": [0.0, 0.0, -0.5, 0.0, -0.25],
    }
    rows = {name: torch.tensor([[*around[0], *values, *around[1]]]) for name, values in full.items()}
    return rows | {name: rows[name][:, -width:] for name in ("written", "advantages", "logprobs")}


@pytest.mark.parametrize(("width", "left"), [(7, 0), (6, 1), (4, 1), (3, 2), (5, 0)])
def test_a_line_of_a_batch(width: int, left: int) -> None:
    """Whatever the padding, and the columns of other tensors, texts and numbers are those of the tokens."""
    rows = padded(width, left)
    batch = RolloutBatch(
        since=rows["written"],
        mask=rows["written"],
        rewards=[0.75],
        groups=["g"],
        components={"a": [1.0], "b": ["x"]},
        **rows,
    )
    (found,) = batch.rollouts(TOKENIZER)

    assert found.prompt == "ab"
    assert [one["content"] for one in found.completion] == ["c", "d", "e"]  # type: ignore[attr-defined] # messages
    assert (found.tokens, found.mask, found.logprobs) == ([3, 4, 5], [1, 0, 1], [-0.5, 0.0, -0.25])
    assert (found.reward, found.advantage, found.components) == (0.75, 1.5, {"a": 1.0})
    assert found.pieces == ["c", "d", "e"]


def test_a_token_is_decoded_once() -> None:
    """A batch has tens of thousands of tokens, on the trainer's thread."""
    decoded: list[list[int]] = []
    tokenizer = SimpleNamespace(decode=lambda tokens: decoded.append(tokens) or letters(tokens))
    found = [pieces_of(tokenizer.decode)[token] for token in (1, 2, 1, 2, 1)]

    assert found == ["a", "b", "a", "b", "a"]
    assert decoded == [[1], [2]]


def test_nothing_is_trained_on() -> None:
    """A completion that a filter masks keeps its text and tokens, without an advantage."""
    rows = padded(3, 2)
    batch = RolloutBatch(since=rows["written"], mask=rows["written"] * 0, rewards=[0.0], groups=["g"], **rows)
    (found,) = batch.rollouts(TOKENIZER)

    assert (found.tokens, found.mask, found.advantage) == ([3, 4, 5], [0, 0, 0], None)


def test_completions_of_one_prompt_are_a_group(tmp_path: Path, records_of: Callable[..., list[Record]]) -> None:
    """A framework may have shuffled them; each keeps its numbers."""
    run = otel_rl.init(agent="off", exporters=[], dir=tmp_path, quiet=True, content=True)
    assert run_with_texts() is run
    rollouts = [
        ScoredRollout(
            prompt=group, completion=letters([n]), group=group, tokens=[n], mask=[True], logprobs=[-float(n)], reward=n
        )
        for n, group in enumerate("xyx", 1)
    ]
    record(run, 5, rollouts)
    run.finish()
    wrote = [one for one in records_of(run) if isinstance(one, Wrote) and one.messages]
    found = [(one.group_id, one.messages[0].text, array("d", one.messages[0].logprobs)) for one in wrote]

    assert [(group, text) for group, text, numbers in found if numbers] == [
        ("rank0.0.0", "a"),
        ("rank0.0.0", "c"),
        ("rank0.0.1", "b"),
    ]
    assert [list(numbers) for _, _, numbers in found if numbers] == [[-1.0], [-3.0], [-2.0]]


def test_texts_are_off_by_default(recording: otel_rl.Run) -> None:
    """Without `content=True`, hooks read nothing."""
    assert run_with_texts() is None


def trainer(**logs: Any) -> Any:
    """Return what of TRL's trainer is read, on the second of two ranks."""
    return SimpleNamespace(
        _logs=logs,
        accelerator=SimpleNamespace(process_index=1, num_processes=2, is_main_process=False),
        reward_func_names=["length"],
        reward_weights=torch.tensor([2.0]),
        num_generations=2,
        processing_class=SimpleNamespace(pad_token_id=0, decode=letters),
    )


def test_a_rank_of_trl_returns_its_own() -> None:
    """Of the texts of all ranks, with its own tokens; a text that was cut and is masked keeps all of them."""
    scores = {"length": [0.0, 0.0, 1.5, float("nan")]}
    own = trainer(prompt=list("yyzz"), completion=list("cdef"), advantages=[0.0] * 4, rewards=scores)
    batch = {
        "completion_ids": torch.tensor([[5, 6, 0], [7, 8, 9]]),
        "completion_mask": torch.tensor([[1, 1, 0], [0, 0, 0]]),
        "old_per_token_logps": torch.tensor([[-0.5, -0.25, -9.0], [-1.0, -2.0, -3.0]]),
    }
    first, second = rollouts_of(own, batch)

    assert (first.prompt, first.completion, first.tokens, first.mask) == ("z", "e", [5, 6], [1, 1])
    assert (first.trainer_logprobs, first.logprobs, first.reward) == ([-0.5, -0.25], None, 3.0)
    assert (first.pieces, second.pieces) == (["e", "f"], ["g", "h", "i"])
    assert (second.completion, second.tokens, second.mask) == ("f", [7, 8, 9], [0, 0, 0])
    assert (second.reward, second.components, second.group) == (0, {}, 1)


def test_a_list_of_batches_is_read_by_the_first_rank() -> None:
    """ms-swift returns other batches than TRL: texts are recorded once, without tokens."""
    own = trainer(prompt=["x", "x"], completion=["a", "b"], advantages=[1.0, -1.0], rewards={"length": [1.0, 2.0]})

    assert rollouts_of(own, [{}]) == []

    own.accelerator.is_main_process = True
    assert [(one.completion, one.tokens, one.reward) for one in rollouts_of(own, [{}])] == [
        ("a", (), 2.0),
        ("b", (), 4.0),
    ]


def test_the_policy_began_with_the_runs_of_the_mask() -> None:
    """Earlier messages of an assistant are part of the prompt."""
    messages = [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 3, "abcdef", strict=True)]
    before, since = _parted(messages, [True, False, True])

    assert ([one["content"] for one in before], [one["content"] for one in since]) == (list("abc"), list("def"))  # type: ignore[attr-defined] # messages
