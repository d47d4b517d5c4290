"""Holds the messages of trajectories until the step that trains on them closes, and chooses those that are kept.

A rollout worker records messages, and a rank of the trainer records, earlier or later and maybe on another machine,
that a step trained on the trajectory. A trajectory that no step takes leaves after some steps, with the number of the
step that is open then. All that waits is part of every checkpoint, so it is bounded: of more, whole groups are left out
by a hash of their identity.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from operator import sub
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from otel_rl import semconv
from otel_rl.export import Message, Span
from otel_rl.recorder.agent.steps.message_budget import Candidate, chosen, lot
from otel_rl.recorder.agent.steps.state import Written, rank_and_role
from otel_rl.recorder.convert.gen_ai_messages import MessageText, attributes_of
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.journal.records import IDS, TOKEN_LISTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.state import State
    from otel_rl.recorder.journal.records import Consumed, WrittenMessage, Wrote

logger = log_of(__name__)
_KEPT_BYTES = 4 << 20
"""Bytes of messages that are kept of a step: of 1,000 trajectories of 1,000 tokens, every fifth."""
MOST_WAITING = 8 << 20
"""Bytes of messages that wait. A checkpoint has them, and is written every 2 s at most with as many."""
_ROOM = 0.75
"""Fraction of it that stays when there are more."""
_MOST_STEPS = 4
"""Steps that close before a trajectory counts as one that no step takes."""
_ALL = 1 << 32
_OVERHEAD = 96
_ASSISTANT = "assistant"


class MessageBuffer:
    """The messages of trajectories that wait for their step.

    Args:
        state: What waits is in it.
        most: Bytes that may wait; 0 if another machine keeps messages.
        in_spans: If true, spans have the messages too.

    Attributes:
        left_out: Number of trajectories whose messages are not kept.
        mismatched: Number of trajectories whose log-probabilities in the trainer are of another number of tokens.
    """

    def __init__(self, state: State, most: int = MOST_WAITING, *, in_spans: bool = True) -> None:
        self._state, self._most, self._in_spans = state, most, in_spans
        self._size = sum(one.size for one in state.written.values())
        self._is_used = bool(state.written)
        self._below = _ALL  # lots of the groups that may wait
        self._torn = set[str]()  # groups that are too large to be kept whole
        self.left_out = self.mismatched = 0

    def add(self, journal: str, record: Wrote) -> None:
        """Add messages of a trajectory."""
        self._is_used = self._most > 0
        key = _key(record.trace_id, record.span_id)
        one = self._of(key, record.group_id)
        if one is None:
            self._leave_out(int(record.is_last and self._is_used))
            return
        one.group, one.journal = record.group_id or key, journal
        one.is_whole |= record.is_last
        if record.messages:
            one.records.append(record)
            self._grow(one, sum(map(_bytes, record.messages)))
        self._shed()

    def consume(self, attempt: int, record: Consumed) -> Consumed:
        """Note which step took trajectories; return the record without log-probabilities, which wait here."""
        if not (self._is_used or record.logprobs):
            return record
        rewards = array("d", record.rewards)
        logprobs = record.logprobs or [b""] * len(rewards)
        origins = record.origins or [("", "", "")] * len(rewards)
        each = zip(IDS.iter_unpack(record.ids), rewards, logprobs, origins, strict=True)
        for (trace_id, span_id), reward, raw, (_, group_id, _) in each:
            key = _key(trace_id, span_id)
            if span_id and (one := self._of(key, group_id)) is not None:
                one.taken, one.reward = (attempt, record.step), reward
                one.has_span = record.have_spans
                if raw:
                    self._grow(one, len(raw) - len(one.logprobs))
                    one.logprobs = raw
        self._shed()
        return replace(record, logprobs=[])

    def attributes(self, trace_id: str, span_id: str) -> dict[str, str]:
        """Return the messages of a trajectory as attributes of its span; none if they are left out."""
        one = self._state.written.get(f"{trace_id}{span_id}") if self._in_spans else None
        return _attributes(one) if one else {}

    def leave(self, attempt: int, step: int) -> list[Message | Span]:
        """Return the messages that leave when a step has closed."""
        ready: dict[str, Written] = {}
        silent: list[str] = []
        for key, one in self._state.written.items():
            is_taken = one.taken is not None and self._state.is_closed(*one.taken)
            if not one.records:
                silent.append(key)
            elif one.is_whole or self._is_over(one):  # a long trajectory may go on for many steps
                if is_taken or one.waited >= _MOST_STEPS:
                    ready[key] = one
                one.waited += one.taken is None
        room = self._most // 2
        for key in reversed(silent):  # their messages may still come, such as from another machine
            room -= self._state.written[key].size
            if room < 0:
                ready[key] = self._state.written[key]
        return self._kept(ready, attempt, step)

    def leave_all(self, attempt: int) -> list[Message | Span]:
        """Return the messages that leave when nothing more is expected."""
        return self._kept(dict(self._state.written), attempt, 0)

    def _of(self, key: str, group: str) -> Written | None:
        """Return what a trajectory has written; `None` if its group, which may be unknown, is left out."""
        written = self._state.written
        group = group or (written[key].group if key in written else key)
        if not self._most or self._lot(key, group) >= self._below:
            self._size -= written.pop(key).size if key in written else 0
            return None
        if key not in written:
            written[key] = Written(group)
            self._grow(written[key], _OVERHEAD)
        return written[key]

    def _grow(self, one: Written, size: int) -> None:
        one.size += size
        self._size += size

    def _shed(self) -> None:
        """If too much waits, leave out groups until there is room, those with the highest lots, also if more comes."""
        if self._size <= self._most:
            return
        written = self._state.written
        sizes = Counter[str]()
        for one in written.values():
            sizes[one.group] += one.size
        self._torn |= {group for group, size in sizes.items() if size > self._most // 4}
        of_lot: dict[int, list[str]] = {}
        for key, one in written.items():
            of_lot.setdefault(self._lot(key, one.group), []).append(key)
        for number in sorted(of_lot, reverse=True):
            if self._size <= _ROOM * self._most:
                break
            self._below = number
            gone = [written.pop(key) for key in of_lot[number]]
            self._size -= sum(one.size for one in gone)
            self._leave_out(sum(one.is_whole for one in gone))  # others are counted when they end

    def _lot(self, key: str, group: str) -> int:
        return lot(key if group in self._torn else group)

    def _leave_out(self, count: int) -> None:
        if count and not self.left_out:
            logger.info("more than %d MiB of messages in a step: a sample of the groups is kept", _KEPT_BYTES >> 20)
        self.left_out += count

    def _is_over(self, one: Written) -> bool:
        """Return whether the process that recorded messages has ended, so that none follow."""
        journal = self._state.journals.get(one.journal)
        return journal is not None and journal.over

    def _kept(self, ready: Mapping[str, Written], attempt: int, step: int) -> list[Message | Span]:
        """Return the messages of those that are kept within the budget, and forget all of them."""
        for key, one in ready.items():
            del self._state.written[key]
            self._size -= one.size
        if self._size < self._most // 2:
            self._below, self._torn = _ALL, set()
        written = {key: one for key, one in ready.items() if one.records}
        if sum(one.size for one in written.values()) <= _KEPT_BYTES:
            keys = set(written)
        else:
            keys = chosen([_candidate(key, one) for key, one in written.items()], _KEPT_BYTES)
        self._leave_out(len(written) - len(keys))
        open_step = max(
            [step, *(one.position for one in self._state.journals.values() if one.started.attempt == attempt)]
        )
        return [
            message
            for key, one in written.items()
            if key in keys
            for message in self._items(key, one, one.taken or (attempt, open_step))
        ]

    def _items(self, key: str, one: Written, taken: tuple[int, int]) -> Iterator[Message | Span]:
        """Yield the messages of a trajectory, and a span with them if it has none: exporters of traces show spans."""
        messages = [*self._messages(key, one, taken)]
        yield from messages
        if one.has_span or not self._in_spans:
            return
        attributes: dict[str, AttributeValue] = {semconv.LOOP_ITERATION: taken[1]}
        attributes |= rank_and_role(self._state.journals[one.journal].started)
        attributes |= {} if math.isnan(one.reward) else {semconv.TRAJECTORY_REWARD: one.reward}
        time = messages[-1].time_unix_nano
        yield Span(semconv.SPAN_COMPLETION, key[:32], key[32:], "", time, time, attributes | _attributes(one))

    def _messages(self, key: str, one: Written, taken: tuple[int, int]) -> Iterator[Message]:
        started = self._state.journals[one.journal].started
        said = [
            (record.number + place, record.time, message)
            for record in sorted(one.records, key=lambda record: record.number)
            for place, message in enumerate(record.messages)
        ]
        in_trainer = _in_trainer([message for *_, message in said], one.logprobs)
        if in_trainer is None:
            if not self.mismatched:
                logger.warning("step %d: log-probabilities in the trainer are not of the recorded tokens", taken[1])
            self.mismatched += 1
        for (number, time, message), logprobs in zip(said, in_trainer or [b""] * len(said), strict=True):
            where = *taken, time, started.role, started.rank, key[:32], key[32:], number
            yield Message(*where, **asdict(message), trainer_logprobs=logprobs)


def _key(trace_id: bytes, span_id: int) -> str:
    return f"{trace_id.hex()}{span_id:016x}"


def _attributes(one: Written) -> dict[str, str]:
    """Return messages as attributes of a span."""
    said = [message for record in sorted(one.records, key=lambda record: record.number) for message in record.messages]
    return attributes_of([MessageText(one.author, one.name, one.text, one.cut, one.calls) for one in said])


def _bytes(message: WrittenMessage) -> int:
    texts = "".join((message.text, message.calls, *message.pieces))
    lists = sum(len(getattr(message, name)) for name in TOKEN_LISTS) + len(message.pieces)
    return len(texts.encode()) + lists + _OVERHEAD


def _tokens(message: WrittenMessage) -> int:
    """Return the number of tokens of a message; 0 if it is unknown."""
    return len(message.tokens) // 4 or len(message.logprobs) // 8 or len(message.mask)


def _in_trainer(messages: list[WrittenMessage], logprobs: bytes) -> list[bytes] | None:
    """Return the log-probabilities in the trainer for each message; `None` if they are of other tokens.

    They are those of the assistant's tokens, or of all tokens that have been recorded. If no tokens of the assistant
    have been, its only message has them.
    """
    if not logprobs:
        return [b""] * len(messages)
    is_own = [one.author == _ASSISTANT for one in messages]
    of_assistant = [_tokens(one) if own else 0 for one, own in zip(messages, is_own, strict=True)]
    if is_own.count(True) == 1 and not any(of_assistant):
        return [logprobs if own else b"" for own in is_own]
    for counts in (of_assistant, [_tokens(one) for one in messages]):
        if 8 * sum(counts) == len(logprobs):
            ends = [8 * sum(counts[: place + 1]) for place in range(len(counts))]
            return [logprobs[end - 8 * count : end] for end, count in zip(ends, counts, strict=True)]
    return None


def _candidate(key: str, one: Written) -> Candidate:
    messages = [message for record in one.records for message in record.messages]
    own = [message for message in messages if message.author == _ASSISTANT]
    length = sum(map(_tokens, own)) or sum(len(message.text) for message in own)
    return Candidate(key, one.group, one.size, one.reward, length, _gap(messages, one.logprobs))


def _gap(messages: list[WrittenMessage], logprobs: bytes) -> float:
    """Return the mean absolute difference between the log-probabilities of the engine and of the trainer."""
    in_engine = array("d", b"".join(message.logprobs for message in messages))
    in_trainer = array("d", b"".join(_in_trainer(messages, logprobs) or ()))
    if not in_engine or len(in_engine) != len(in_trainer):
        return math.nan
    return math.fsum(map(abs, map(sub, in_engine, in_trainer))) / len(in_engine)
