"""Rollouts, trajectories and their parts.

A rollout worker and the trainer are different processes, with queues between them and different weight versions. So a
trajectory is a trace of its own. Its ticket travels with the data to the trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from otel_rl import semconv
from otel_rl.recorder.convert.values import to_number, to_whole
from otel_rl.recorder.errors.texts import LONGEST_NAME, meant, name_of, shown, text_of
from otel_rl.recorder.journal.ids import SpanIds, format_traceparent
from otel_rl.recorder.journal.records import PART_KINDS, UNKNOWN
from otel_rl.recorder.secrets import redacted_name
from otel_rl.recorder.trainer.arguments import cut_name, refuse_extra
from otel_rl.recorder.trainer.phase import Phase
from otel_rl.recorder.trainer.spans import never_raises
from otel_rl.recorder.trainer.tickets import MOST_TOKENS, ORIGIN, Ticket
from otel_rl.recorder.trainer.time_split import TimeSplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Never, Self

    from otel_rl.recorder.trainer.messages import MessageWriter
    from otel_rl.recorder.trainer.recorder import Recorder
    from otel_rl.recorder.trainer.step import Steps, StepSpan

_SPAN_NAMES = {kind: f"{semconv.SPAN_TRAJECTORY}.{kind}" for kind in PART_KINDS}
_NAME = {"tool": semconv.GEN_AI_TOOL_NAME}
_LONGEST_ID = 128
"""Characters of the identity of a prompt, a group or a row of the dataset."""


class Rollout(Phase):
    """A batch of trajectories with a trace of its own; a context manager. If `recorded` is false, it has no span."""

    _span_kind = SpanKind.INTERNAL
    _span_name = semconv.SPAN_ROLLOUT

    def __init__(
        self, steps: Steps, *, recorded: bool, policy_version: int | None, attributes: Mapping[str, object]
    ) -> None:
        version = {} if policy_version is None else {semconv.POLICY_VERSION: policy_version}
        super().__init__(steps, self._span_name, {**version, **attributes})
        self.policy_version = UNKNOWN if policy_version is None else policy_version
        self._recorded = recorded

    def _place(self, parent: trace.Span | None, step: StepSpan | None) -> tuple[int, bytes]:
        """Return no parent: another step than the open one may train on it."""
        return 0, self._recorder.ids.trace_id().to_bytes(16, "big")

    def __enter__(self) -> Self:
        if self._recorded:
            return super().__enter__()
        self._split_from(self._recorder.clock.now())
        return self

    def _split_from(self, time: int) -> None:
        """Begin to split the time into parts."""


class Trajectory(Rollout):
    """One trajectory with a trace of its own, linked to the rollout that is current; a context manager.

    Phases, requests and tool calls inside are in its trace. An inference server joins it by `otel_rl.carrier()`.
    """

    _span_name = semconv.SPAN_TRAJECTORY
    _split: TimeSplit | None = None  # `None` until it begins

    def __init__(
        self, steps: Steps, *, recorded: bool, policy_version: int | None, attributes: Mapping[str, object]
    ) -> None:
        super().__init__(steps, recorded=recorded, policy_version=policy_version, attributes=attributes)
        self._tokens: dict[int, int] = {}
        self._reward: float | None = None
        self._components: dict[str, int | float] = {}
        self._origin = {
            key: text_of(attributes[key])[:_LONGEST_ID] for key in ORIGIN if attributes.get(key) is not None
        }
        self._messages: MessageWriter | None = None  # until there is one
        batch = trace.get_current_span()
        if recorded and isinstance(batch, Rollout):
            self.add_link(batch.get_span_context())

    def part(  # type: ignore[override] # the name of a part is a text, not an attribute of any type
        self, kind: str = "", /, *_extra: Never, name: str = "", **attributes: object
    ) -> TrajectoryPart:
        """Return a context manager for a part of the trajectory.

        The time of each kind is summed over the trajectories of a step, and the time of tools by name. While several
        parts are open, time counts for the last one that began. A call with another kind is refused and counted.

        Args:
            kind: "model", "tool", "environment" or "verifier".
            name: Name of the tool, model, environment or verifier, such as "search".
            attributes: Attributes of its span.
        """
        recorder = self._recorder
        if _extra:
            refuse_extra(recorder, "part", _extra, fix="; write part('tool', name='search')")
        known = _known_kind(recorder, kind)
        is_short = type(name) is str and len(name) <= LONGEST_NAME
        called = redacted_name(name) if is_short else cut_name(recorder, "part", name)
        return TrajectoryPart(self._steps, self, known, called, attributes, recorded=self._recorded)

    def _begin(self, parent: trace.Span | None, start_time: int | None = None) -> None:
        super()._begin(parent, start_time)
        self._split_from(self._began)

    def _split_from(self, time: int) -> None:
        self._split = TimeSplit(time)

    @never_raises
    def generated(self, tokens: int, policy_version: int | None = None) -> None:
        """Add generated tokens.

        Args:
            tokens: Number of tokens.
            policy_version: Version of the policy that generated them; by default the last one.
        """
        count = to_whole(tokens, 0, MOST_TOKENS)
        if policy_version is not None:
            self.policy_version = to_whole(policy_version, UNKNOWN)
        self._tokens[self.policy_version] = self._tokens.get(self.policy_version, 0) + count

    @never_raises
    def message(
        self,
        role: str,
        content: object,
        *,
        name: str = "",
        tokens: object = None,
        logprobs: object = None,
        mask: object = None,
        tool_calls: object = None,
        pieces: object = None,
    ) -> None:
        """Record a message; without `init(content=True)` this does nothing.

        Lists are Python's, NumPy arrays, or tensors in host memory, with one value for each token. Texts of more than
        65,536 characters are cut, and a trajectory keeps 4 MiB.

        Args:
            role: Who wrote it: "system", "user", "assistant" or "tool".
            content: A text, or a list of parts; other parts than texts are represented by their type.
            name: Name of the tool.
            tokens: Ids of the tokens.
            logprobs: Log-probability of each token in the inference engine.
            mask: For each token, whether it is trained on.
            tool_calls: The tool calls of an assistant, as in OpenAI's messages.
            pieces: Text of each token.
        """
        recorder = self._recorder
        if not recorder.content:
            return
        if self._split is None or not self._split.is_open:
            recorder.refuse("message", f"message of {shown(role)}: its trajectory is not open")
            return
        if self._messages is None:
            from otel_rl.recorder.trainer.messages import MessageWriter  # where there are texts

            if not self._recorded:  # without spans, messages have ids all the same
                ids = recorder.ids
                self._trace_id, self._span_id = ids.trace_id().to_bytes(16, "big"), ids.span_id()
            self._messages = MessageWriter(recorder, (self._trace_id, self._span_id), self._origin.get("group_id", ""))
        lists = {"tokens": tokens, "logprobs": logprobs, "mask": mask, "pieces": pieces}
        version = self.policy_version
        self._messages.add(role, content, name=name, tool_calls=tool_calls, policy_version=version, **lists)

    @never_raises
    def rewarded(self, reward: float, components: Mapping[str, float] | None = None) -> None:
        """Set the reward of the trajectory.

        Args:
            reward: The reward.
            components: The parts that it is made of, such as those of several verifiers, by name.
        """
        self._reward = float(reward)
        if components is not None:
            self._components = {name_of(name): to_number(value) for name, value in components.items()}

    def ticket(self) -> Ticket:
        """Return the mapping that travels with the data to the trainer; it has JSON types only."""
        versions, tokens = list(self._tokens) or [self.policy_version], list(self._tokens.values()) or [0]
        ticket: Ticket = {"policy_version": versions, "tokens": tokens}
        if self._reward is not None:
            ticket["reward"] = self._reward
        ticket |= self._origin
        if self._components:
            ticket["components"] = self._components
        if self._split is not None:
            ticket |= self._split.ticket(self._recorder.clock.now())
        if self._recorded or self._messages is not None:
            span_context = self.get_span_context()
            ticket["traceparent"] = format_traceparent(SpanIds(span_context.trace_id, span_context.span_id))
        return ticket

    def end(self, end_time: int | None = None) -> None:
        """End the trajectory; a second call does nothing."""
        now = self._moment(end_time)
        if self._split is not None:
            if self._split.is_open and self._messages is not None:
                self._messages.close()
            self._split.close(now)
        if not self._ended:
            attributes: dict[str, Any] = {semconv.TRAJECTORY_TOKENS: sum(self._tokens.values())}
            if self._reward is not None:
                attributes[semconv.TRAJECTORY_REWARD] = self._reward
            if len(self._tokens) > 1:
                attributes[semconv.POLICY_VERSIONS] = list(self._tokens)
            self.set_attributes(attributes)
        super().end(now)


class TrajectoryPart(Phase):
    """A part of a trajectory, with a span inside the span of the trajectory; a context manager.

    A part whose kind was refused, or whose trajectory is not open, records nothing.
    """

    _span_kind = SpanKind.INTERNAL

    def __init__(
        self,
        steps: Steps,
        trajectory: Trajectory,
        kind: str,
        name: str,
        attributes: Mapping[str, object],
        *,
        recorded: bool,
    ) -> None:
        if name:
            attributes = {_NAME.get(kind, semconv.TRAJECTORY_PART_NAME): name, **attributes}
        super().__init__(steps, _SPAN_NAMES.get(kind, ""), attributes)
        self._trajectory = trajectory
        self._kind = kind
        self._tool = name if kind == "tool" else ""
        self._recorded = recorded
        self._split: TimeSplit | None = None  # while it is open

    def __enter__(self) -> Self:
        if not self._kind:
            return self
        split = self._trajectory._split
        if split is None or not split.is_open:
            self._recorder.refuse("part", f"part {shown(self._kind)}: its trajectory is not open")
            return self
        self._split = split
        if self._recorded:
            return super().__enter__()
        self._began = self._recorder.clock.now()
        split.enter(self, self._kind, self._began)
        return self

    def _begin(self, parent: trace.Span | None, start_time: int | None = None) -> None:
        super()._begin(parent, start_time)
        if self._split is not None:
            self._split.enter(self, self._kind, self._began)

    def _place(self, parent: trace.Span | None, step: StepSpan | None) -> tuple[int, bytes]:
        """Return the current span if it is of the trajectory, else the trajectory: the part may be in a thread."""
        place = super()._place(parent, step)
        whole = self._trajectory
        return place if place[1] == whole._trace_id else (whole._span_id, whole._trace_id)

    def end(self, end_time: int | None = None) -> None:
        """End the part; a second call does nothing."""
        now = self._moment(end_time)
        super().end(now)
        split, self._split = self._split, None
        if split is not None:
            split.exit(self, self._tool, max(0, now - self._began) / 1e9, now)


def _known_kind(recorder: Recorder, kind: object) -> str:
    """Return the kind of a part; if it is unknown, refuse it and return an empty text."""
    known = kind if type(kind) is str else str.__str__(kind) if isinstance(kind, str) else ""
    if known in PART_KINDS:
        return known
    recorder.refuse("part", f"part {shown(kind)} of a trajectory: unknown kind{meant(known, PART_KINDS)}")
    return ""
