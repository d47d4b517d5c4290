"""A batch of completions, as trajectories with messages."""

from __future__ import annotations

import math
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from otel_rl.recorder.convert.completions import message_text
from otel_rl.recorder.convert.tables import to_list
from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.journal.ids import SpanIds, format_traceparent
from otel_rl.recorder.journal.records import TOKEN_LISTS
from otel_rl.recorder.trainer.messages import MessageWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.export import Cell
    from otel_rl.recorder.trainer.recorder import Recorder
    from otel_rl.recorder.trainer.tickets import Ticket

_COMPONENT = "reward/"
_ASSISTANT = "assistant"
_OF_TOKENS = *TOKEN_LISTS, "pieces"


def write_batch(
    recorder: Recorder,
    batch: str,
    table: Mapping[str, Sequence[Cell]],
    prompts: object,
    completions: object,
    lists: Mapping[str, object],
) -> tuple[list[Ticket], list[Any]]:
    """Record the messages of completions; return their tickets, and their log-probabilities in the trainer, if given.

    Args:
        recorder: The writer of records.
        batch: A name of the batch, by which its groups differ from those of others.
        table: The table of the completions.
        prompts: As they were given.
        completions: As they were given.
        lists: The lists of the tokens of each completion, and `trainer`, its log-probabilities; `None` if not given.
    """
    number = len(table["completion"])
    every = _flat("completions", completions, number)
    asked = to_list("prompts", prompts)
    of_each = {what: _lists(recorder, what, given, number) for what, given in lists.items()}
    tickets: list[Ticket] = []
    for n, completion in enumerate(every):
        group = table["prompt_index"][n]
        group_id = "" if group == -1 else f"{batch}.{group}"
        trace_id, span_id = recorder.ids.trace_id(), recorder.ids.span_id()
        writer = MessageWriter(recorder, (trace_id.to_bytes(16, "big"), span_id), group_id)
        prompt = asked[n if len(asked) == number else int(group or 0)]
        for message in _messages("user", prompt):
            writer.add(**message)
        own = {what: of_each[what][n] for what in _OF_TOKENS if of_each[what]}
        messages = _messages(_ASSISTANT, completion)
        for message, part in zip(messages, _parts([message["author"] for message in messages], own), strict=True):
            writer.add(**message, **part)
        writer.close()
        tickets.append(_ticket(table, n, group_id, len(own.get("tokens") or ())))
        tickets[-1]["traceparent"] = format_traceparent(SpanIds(trace_id, span_id))
    return tickets, of_each["trainer"]


def _ticket(table: Mapping[str, Sequence[Any]], n: int, group_id: str, tokens: int) -> Ticket:
    components = {
        name.removeprefix(_COMPONENT): cells[n]
        for name, cells in table.items()
        if name.startswith(_COMPONENT) and not math.isnan(cells[n])
    }
    reward = table["reward_total"][n]
    return {"tokens": tokens, "reward": reward, "group_id": group_id or None, "components": components}


def _messages(author: str, given: Any) -> list[dict[str, Any]]:
    """Return the messages of a text by one author, or of a conversation."""
    if isinstance(given, str):
        return [{"author": author, "content": given}]
    return [
        {
            "author": message.get("role") or author,
            "content": message_text(message),
            "name": message.get("name") or "",
            "tool_calls": message.get("tool_calls") or None,
        }
        for message in given
    ]


def _parts(authors: Sequence[str], own: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Return which tokens of a completion each of its messages has.

    The assistant's tokens are trained on, and those of tools are not. So runs of the mask are the messages, if there
    are as many. Otherwise the first message of the assistant has all tokens.
    """
    parts: list[dict[str, Any]] = [{} for _ in authors]
    firsts = [next(run)[0] for _, run in groupby(enumerate(authors), lambda one: one[1] == _ASSISTANT)]
    runs = [(is_own, len([*run])) for is_own, run in groupby(map(bool, own.get("mask") or ()))]
    if len(runs) == len(firsts) > 1 and runs[0][0] == (authors[0] == _ASSISTANT):
        begin = 0
        for first, (_, length) in zip(firsts, runs, strict=True):
            parts[first] = {what: values[begin : begin + length] for what, values in own.items()}
            begin += length
    elif parts:
        parts[authors.index(_ASSISTANT) if _ASSISTANT in authors else 0] = dict(own)
    return parts


def _lists(recorder: Recorder, what: str, given: object, number: int) -> list[list[Any]]:
    """Return a list for each completion; none, and count it, if they are on a device or are not as many."""
    if given is None:
        return []
    try:
        return [to_list(what, values) for values in _flat(what, given, number)]
    except Exception as error:  # a foreign object may raise anything
        recorder.refuse("completions", f"completions: {text_of(error)}")
        return []


def _flat(what: str, given: object, number: int) -> list[Any]:
    """Return one entry for each completion of a list of them, or of a list of groups.

    Raises:
        ValueError: There are not as many.
    """
    groups = to_list(what, given)
    if len(groups) != number or (groups and _is_group(what, groups[0])):
        groups = list(chain.from_iterable(to_list(what, group) for group in groups))
    if len(groups) != number:
        raise ValueError(f"{len(groups)} {what} for {number} completions")
    return groups


def _is_group(what: str, value: Any) -> bool:
    """Return whether an entry is a list of completions, or of lists, rather than one of them."""
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return (
        isinstance(value[0], (list, tuple) if what == "pieces" else (list, tuple, str))
        or getattr(value[0], "ndim", 0) > 0
    )
