"""A run as the trainer sees it.

Every call writes a record into the journal of this process and returns; the agent does the rest.
After `init`, nothing here raises into the trainer: calls that cannot be served are counted and logged.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry import trace

from otel_rl.recorder.convert import params
from otel_rl.recorder.convert.attributes import clean_attributes
from otel_rl.recorder.errors.texts import LONGEST_NAME, shown, text_of
from otel_rl.recorder.journal.ids import packed_step_ids
from otel_rl.recorder.journal.records import (
    ENGINE,
    TRAINED,
    TRAINER,
    UNKNOWN,
    Configured,
    Fingerprint,
    Happened,
    Tabled,
)
from otel_rl.recorder.secrets import redacted_name
from otel_rl.recorder.settings.joining import PARENT_VARIABLE, for_children
from otel_rl.recorder.trainer.arguments import (
    column_names,
    cut_name,
    refuse_extra,
    to_amount,
    to_step,
    to_whole_or_none,
)
from otel_rl.recorder.trainer.finishing import PATIENCE_S, Delivery, RunEnd
from otel_rl.recorder.trainer.habits import WithHabits
from otel_rl.recorder.trainer.no_span import NoSpan
from otel_rl.recorder.trainer.phase import Phase
from otel_rl.recorder.trainer.printed import PrintedLines
from otel_rl.recorder.trainer.propagation import carrier
from otel_rl.recorder.trainer.reactions import Reactions
from otel_rl.recorder.trainer.recorder import Recorder
from otel_rl.recorder.trainer.spans import JournaledSpan, never_raises
from otel_rl.recorder.trainer.step import REFUSED, Steps, StepSpan
from otel_rl.recorder.trainer.tickets import NO_SCORES, GivenScores, consumed, scores
from otel_rl.recorder.trainer.tracing import RunTracerProvider
from otel_rl.recorder.trainer.trajectories import Rollout, Trajectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Never, Self

    from otel_rl.export import Event
    from otel_rl.recorder.trainer.opening import Unrecorded
    from otel_rl.recorder.trainer.session import Session

Sampling = TypeVar("Sampling", bound=Rollout)
_NO_VALUES: Mapping[str, object] = MappingProxyType({})
_OF_EVENTS = ("rl", "*", "?", "[")
"""How patterns of the agent's events begin."""
_BY_NAME = "; attributes have names, such as host=…"


class Run(WithHabits):
    """A run that is being recorded, as `init` returns it; a context manager that finishes it.

    Attributes:
        id: Identity of the run, the same on all ranks and in all attempts.
        attempt: How often this rank of the run was started before.
        prometheus: URL that Prometheus can scrape; `None` if there is none.
        tracer_provider: OpenTelemetry's tracer provider for instrumentation libraries; their spans are in the run.
    """

    def __init__(
        self, session: Session | Unrecorded, *, spans: bool, provider_is_global: bool, asked_for: dict[str, object]
    ) -> None:
        self.id = session.settings.id
        self.attempt = session.attempt
        self.prometheus = session.prometheus
        reports = session.directory.path / "oom" / f"{session.label}.attempt{self.attempt}"
        self._recorder = Recorder(session, reports, session.settings.memory)
        self._asked_for = asked_for
        self._session = session
        self._spans = spans
        self._batches = count()
        self._began = self._recorder.clock.now()
        self._steps = Steps(self._recorder)
        self._no_span = NoSpan(self._steps)
        self._end = RunEnd(self._steps, session, PrintedLines(self._recorder, session.settings.output))
        self.tracer_provider: trace.TracerProvider = (
            RunTracerProvider(self._steps) if spans else trace.NoOpTracerProvider()
        )
        if provider_is_global:
            trace.set_tracer_provider(self.tracer_provider)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") or name.startswith("__")]

    @property
    def dir(self) -> Path:
        """The run directory."""
        return self._session.directory.path

    @property
    def refused(self) -> dict[str, int]:
        """Number of calls, or parts of calls, that were refused so far, by the call or by what was wrong."""
        return self._recorder.refused

    def step(self, number: int | None = None, /, *_extra: Never, **attributes: object) -> StepSpan:
        """Return a context manager for one iteration of the RL loop.

        A step that is negative, repeated, or inside another one is refused, and so is what is logged inside without
        `step=`: both are counted, and logged as warnings.

        Args:
            number: Number of the iteration. Steps count up from 0, the same on all ranks; gaps are allowed.
            attributes: Attributes of the step's span.
        """
        recorder, steps = self._recorder, self._steps
        try:
            if _extra:
                refuse_extra(recorder, "step", _extra, fix=_BY_NAME)
            if number is None:  # which is refused, unless the number is given by name
                number = attributes.pop("step", attributes.pop("number", None))  # type: ignore[assignment]
            number = to_step(number)
        except ValueError as error:
            recorder.refuse("step", f"{error}; steps count up from 0")
            return StepSpan(steps, REFUSED, (b"", 0), attributes)
        if number <= steps.last_begun:
            before = "again" if number == steps.last_begun else f"after step {steps.last_begun}"
            recorder.refuse("step", f"step {number} {before}; steps count up from 0")
        elif steps.open is not None and steps.is_inside_step():
            recorder.refuse("step", f"step {number} inside step {steps.open.number}; use run.phase() inside")
        else:
            return StepSpan(steps, number, packed_step_ids(self.id, self.attempt, number), attributes)
        return StepSpan(steps, REFUSED, (b"", 0), attributes)

    def phase(self, name: str = "", /, *_extra: Never, **attributes: object) -> Phase | NoSpan:
        """Return a context manager for a phase: a named part of a step, timed, with the memory at both ends.

        Inside a function that `torch.compile` compiles it does nothing, so that it does not break the graph.

        Args:
            name: Name of the phase, such as "generate"; at most 4,096 characters.
            attributes: Attributes of its span. `awaits` names who owes what it waits for, such as `reward 0`;
                `version` is the version of the weights that it syncs.
        """
        if _is_compiled():
            return nullcontext(self._no_span)  # type: ignore[return-value] # Dynamo can enter it; `as` gives a NoSpan
        recorder = self._recorder
        if _extra:
            refuse_extra(recorder, "phase", _extra, fix=_BY_NAME)
        is_usual = type(name) is str and 0 < len(name) <= LONGEST_NAME
        if not is_usual and type(name) is str and not name:
            name = attributes.pop("name", "")  # type: ignore[assignment] # cut_name takes anything
        known = redacted_name(name) if is_usual else cut_name(recorder, "phase", name)
        return Phase(self._steps, known, attributes) if self._spans and known else self._no_span

    def rollout(self, *_extra: Never, policy_version: int | None = None, **attributes: object) -> Rollout:
        """Return a context manager for a batch of trajectories, with a trace of its own.

        Args:
            policy_version: Version of the policy that samples; `None` if unknown.
            attributes: Attributes of its span.
        """
        return self._sampling("rollout", Rollout, _extra, policy_version, attributes)

    def trajectory(self, *_extra: Never, policy_version: int | None = None, **attributes: object) -> Trajectory:
        """Return a context manager for one trajectory, with a trace of its own.

        Inside, call `message`, `generated` and `rewarded`. The mapping that `ticket()` returns travels with the data to
        the trainer, which passes it to `trained` or `dropped`.

        Args:
            policy_version: Version of the policy that samples; `None` if unknown.
            attributes: Attributes of its span; `prompt_id`, `group_id` or `group` names its group. Its ticket has
                `prompt_id`, `group_id` and `row` (of the dataset) too.
        """
        return self._sampling("trajectory", Trajectory, _extra, policy_version, attributes)

    @never_raises
    def trained(
        self,
        tickets: Iterable[Mapping[str, Any]],
        *,
        policy_version: int | None = None,
        step: int | None = None,
        advantages: object = None,
        losses: object = None,
        logprobs: object = None,
    ) -> None:
        """Record that the step trains on these trajectories; its trace links to the traces of the trajectories.

        Args:
            tickets: The ticket of each trajectory, or a mapping with `policy_version`, `tokens`, `reward`, each
                optional.
            policy_version: Version of the policy that is trained now; staleness counts from it.
            step: Iteration of the RL loop; by default as in `log`.
            advantages: The advantage of each trajectory, in the order of the tickets.
            losses: The loss of each trajectory.
            logprobs: For each trajectory, the log-probabilities of the assistant's tokens in the trainer, in their
                order; they are recorded with `init(content=True)` alone.
        """
        refuse = partial(self._recorder.refuse, "trained")
        given = scores(advantages, losses, logprobs if self._recorder.content else None, refuse)
        self._consume("trained", tickets, policy_version, step, TRAINED, given)

    @never_raises
    def dropped(
        self,
        tickets: Iterable[Mapping[str, Any]],
        *,
        reason: str,
        policy_version: int | None = None,
        step: int | None = None,
    ) -> None:
        """Record that these trajectories are not trained on.

        Args:
            tickets: The ticket of each trajectory, as in `trained`.
            reason: Why not: "stale", "filtered", "aborted", or any other text.
            policy_version: Version of the policy that is trained now; staleness counts from it.
            step: Iteration of the RL loop; by default as in `log`.
        """
        self._consume("dropped", tickets, policy_version, step, text_of(reason))

    @never_raises
    def weights(self, version: int, tensors: object, *, side: str | None = None) -> None:
        """Record a few elements of the weights of a version of the policy, on the trainer's or the engine's side.

        The agent compares them with what the other processes recorded for this version. Nothing is gathered, and
        nothing waits for a device.

        Args:
            version: Version of the policy, as in tickets.
            tensors: A mapping, or pairs of a name and a tensor, such as `model.named_parameters()`. DTensors say which
                part they are. Other parts of a tensor need two more entries: the shape of the whole tensor, and the
                index in it at which the part begins.
            side: "trainer" or "engine"; by default, ranks are trainers, and processes with a role are engines.
        """
        recorder = self._recorder
        known = to_whole_or_none(recorder, "weights", "version", version)
        chosen = side or (ENGINE if self._session.settings.role else TRAINER)
        if known is None or known == UNKNOWN or chosen not in (TRAINER, ENGINE):
            expected = "a number of 0 or more, and trainer or engine"
            recorder.refuse("weights", f"weights: version={shown(version)}, side={shown(side)}: must be {expected}")
            return
        fingerprint = Fingerprint(known, recorder.clock.now(), chosen, self._steps.now)
        recorder.devices.sample_weights(fingerprint, tensors)

    @never_raises
    def queue(self, name: str, *, depth: float, waited: float = 0.0, step: int | None = None) -> None:
        """Record the depth of a queue, and the time that a caller waited for it.

        Over all calls and ranks of a step, depths are averaged and waits are summed.

        Args:
            name: Name of the queue.
            depth: Number of items in it.
            waited: Seconds.
            step: Iteration of the RL loop; by default as in `log`.
        """
        recorder = self._recorder
        if label := cut_name(recorder, "queue", name):
            items = to_amount(recorder, "queue", f"queue {label}: depth", depth)
            seconds = to_amount(recorder, "queue", f"queue {label}: waited", waited)
            values = {f"queue/{label}/depth@mean": items, f"queue/{label}/wait@sum": seconds}
            self.log({name: [value] for name, value in values.items() if value is not None}, step=step)

    def log(
        self,
        values: Mapping[str, object] = _NO_VALUES,
        *_extra: Never,
        step: int | None = None,
        weight: float = 1,
        commit: object = None,
        **_unknown: Never,
    ) -> None:
        """Record the values of metrics; they are durable when this returns.

        Values are floats, ints, and NumPy or torch scalars; others are refused, one by one. GPU values are copied
        asynchronously on the same stream, so they hold the value at the time of the call, and nothing waits for them.
        Names in nested mappings are joined with "/".

        A list or 1-D array holds observations. Those of all calls and ranks in the step are pooled, and `name` becomes
        `name/mean`, `name/max` and so on; `name@max` is this one statistic, named `name`.

        Args:
            values: Value by name, in the framework's own spelling.
            step: Iteration of the RL loop; by default the open step, otherwise the last one.
            weight: Number of observations that the scalars stand for, 0 or more; means over ranks are weighted by it.
            commit: No effect, as all values of a step are one row; code written for W&B passes it.
        """
        try:
            if _extra or _unknown:
                values = _unknown.pop("data", values) if values is _NO_VALUES else values  # what W&B calls them
                refuse_extra(self._recorder, "log", _extra, _unknown, "; write run.log({name: value, …}, step=n)")
                if _extra:  # perhaps a step: then the values do not belong to the open one
                    return
            self._steps.log(values, step, weight)
        except Exception as error:
            self._recorder.refuse_error("log", error)

    @never_raises
    def table(self, name: str, data: object, *, step: int | None = None) -> None:
        """Record a table, such as prompts, completions and rewards.

        Texts leave the process only with `init(content=True)`; otherwise their cells are empty. Secrets are redacted.
        Rows and texts beyond the limits are cut and counted.

        Args:
            name: Name of the table in trackers.
            data: A mapping from column to a sequence of cells, or a sequence of mappings, one per row.
            step: Iteration of the RL loop; by default as in `log`.
        """
        from otel_rl.recorder.convert import tables  # where there are tables

        recorder = self._recorder
        number = self._steps.of("table", step)
        if number is None:
            return
        columns = column_names(recorder, name, tables.to_columns(data))
        if not columns or not (called := cut_name(recorder, "table", name)):
            return
        table = tables.clean(columns, with_text=self._session.settings.content, limits=tables.Limits())
        if table.cut_rows or table.cut_cells:
            limits = tables.Limits()
            cut = f"left out: rows {table.cut_rows:,}, ends of texts {table.cut_cells:,}; a table has at most"
            most = f"{limits.rows:,} rows and {limits.table_bytes >> 20} MiB, a text {limits.text:,} characters"
            recorder.refuse("table_limits", f"table {text_of(name)}: {cut} {most}")
        now = recorder.clock.now()
        recorder.write(Tabled(number, now, called, list(table.columns), table.rows, table.cut_rows))

    @never_raises
    def completions(
        self,
        prompts: Sequence[object],
        completions: Sequence[object],
        *,
        step: int | None = None,
        name: str = "completions",
        tokens: object = None,
        logprobs: object = None,
        trainer_logprobs: object = None,
        masks: object = None,
        pieces: object = None,
        **columns: object,
    ) -> None:
        """Record generated texts and their rewards, as a table.

        With lists of tokens, and `init(content=True)`, each completion is recorded as a trajectory that the step trains
        on, with its messages: do not pass tickets of the same completions to `trained`.

        Args:
            prompts: One text per prompt, or a conversation.
            completions: Per prompt, a text or a sequence of texts; or conversations.
            step: Iteration of the RL loop; by default as in `log`.
            name: Name of the table in trackers.
            tokens: For each completion, the ids of its tokens.
            logprobs: For each completion, the log-probabilities of the tokens in the inference engine.
            trainer_logprobs: The same in the trainer.
            masks: For each completion, which of the tokens are trained on.
            pieces: For each completion, the texts of the tokens.
            columns: `rewards`, `advantages`, `reward_components`, `q_mass`, `update_weights`, `group_size`, as
                `otel_rl.recorder.convert.completions.completions_table` describes them.
        """
        from otel_rl.recorder.convert.completions import completions_table

        recorder = self._recorder
        number = self._steps.of("completions", step)
        if number is None:
            return
        table = completions_table(number, prompts, completions, **columns)  # type: ignore[arg-type] # it checks them
        self.table(name, table, step=number)
        lists = {"tokens": tokens, "logprobs": logprobs, "trainer": trainer_logprobs, "mask": masks, "pieces": pieces}
        if recorder.content and any(given is not None for given in lists.values()):
            from otel_rl.recorder.trainer.conversations import write_batch

            batch = f"{self._session.label}.{next(self._batches)}"
            tickets, in_trainer = write_batch(recorder, batch, table, prompts, completions, lists)
            scored = scores(table["advantage"], None, in_trainer, partial(recorder.refuse, "completions"))
            self._consume("completions", tickets, None, number, TRAINED, scored, have_spans=False)

    @never_raises
    def params(self, values: object) -> None:
        """Record hyper-parameters; secrets are redacted.

        Args:
            values: A mapping, or an object with fields such as a dataclass; nested names are joined with `.`.
        """
        recorder = self._recorder
        recorder.write(Configured(recorder.clock.now(), params.flatten(values, recorder.refuse)))

    @never_raises
    def event(self, name: str, /, *_extra: Never, **attributes: object) -> None:
        """Record an event at the current time, in the open step and span.

        Args:
            name: Name of the event, such as "checkpoint".
            attributes: Attributes of the event.
        """
        recorder = self._recorder
        if _extra:
            refuse_extra(recorder, "event", _extra, fix=_BY_NAME)
        if not (called := cut_name(recorder, "event", name)):
            return
        span = trace.get_current_span()
        recorded_span = span if isinstance(span, JournaledSpan) else None
        recorder.write(
            Happened(
                called,
                recorder.clock.now(),
                clean_attributes(attributes, recorder.refuse),
                self._steps.now,
                b"" if recorded_span is None else recorded_span._trace_id,
                0 if recorded_span is None else recorded_span._span_id,
            )
        )

    @never_raises
    def on_event(self, name: str, function: Callable[[Event], object], /) -> None:
        """Call a function with each event of this name that the agent makes, such as `rl.training.anomaly`.

        It is called when a step begins or ends, on the thread of the trainer, at the first step after the agent has
        made the event. Its exceptions are counted and logged. Events of earlier attempts are left out.

        Args:
            name: Name of the event, or a pattern such as `rl.*`.
            function: Takes the `otel_rl.export.Event`, with its `name`, `step`, `rank` and `attributes`.
        """
        given: object = function
        if not callable(given):
            self._recorder.refuse("on_event", f"on_event: {shown(given)} is not a function")
        elif called := cut_name(self._recorder, "on_event", name):
            if not called.startswith(_OF_EVENTS):
                why = "it is never called; names of the agent's events begin with rl., as in rl.training.anomaly"
                self._recorder.refuse("on_event", f"on_event {text_of(called)}: {why}")
                return
            reactions = self._steps.reactions
            if reactions is None:
                reactions = Reactions(lambda: self._session.directory.events, self._recorder, self._began)
                self._steps.reactions = reactions
            reactions.add(called, function)

    def environment(self, *_extra: Never, **_unknown: Never) -> dict[str, str]:
        """Return environment variables with which another process joins this run, under the current span.

        Use them for `subprocess`, multiprocessing, or Ray's `runtime_env={"env_vars": run.environment()}`. The other
        process calls `init(role="reward")`, or with another role; without one, a child of a rank is a `worker`. The
        launcher's variables that it inherits do not count, and processes with a role are numbered.
        """
        if _extra or _unknown:
            refuse_extra(self._recorder, "environment", _extra, _unknown)
        chosen = self._session.settings
        variables = {
            "OTEL_RL_RUN_ID": self.id,
            "OTEL_RL_DIR": str(Path(chosen.dir).absolute()),
            "OTEL_RL_PROJECT": chosen.project,
            "OTEL_RL_NAME": chosen.name,
            PARENT_VARIABLE: for_children("" if chosen.role else self._session.label, os.environ),
        }
        if chosen.head:
            variables["OTEL_RL_HEAD"] = chosen.head
        if chosen.redact.patterns:
            variables["OTEL_RL_REDACT_PATTERNS"] = json.dumps(chosen.redact.patterns)
        if chosen.redact.names:
            variables["OTEL_RL_REDACT_NAMES"] = ",".join(chosen.redact.names)
        if chosen.redact.function:
            variables["OTEL_RL_REDACT_FUNCTION"] = chosen.redact.function
        variables |= {f"OTEL_RL_{name.upper()}": "true" for name in ("insecure", "content") if getattr(chosen, name)}
        return variables | {name.upper(): text for name, text in carrier().items()}

    def finish(self, timeout: float = PATIENCE_S, *_extra: Never, **_unknown: Never) -> Delivery:
        """End the run and wait for the exporters; the result is true if everything was delivered in time.

        It is false if an exporter has not taken everything, refused items for good, or records were lost; one warning
        says why. Refused calls and values, each with its own warning, were never recorded: `refused` of the result
        names them, and they do not make it false. The result covers this process only: rows of other ranks, and of
        earlier attempts that were killed, may still be delivered later. Undelivered records stay in the journal, and
        the agent goes on with them.

        Inside `except` or `finally` it records that the run failed. Later calls, from any thread or signal handler,
        wait for the same result.

        Args:
            timeout: Seconds to wait at most.
        """
        if _extra or _unknown:
            refuse_extra(
                self._recorder, "finish", _extra, _unknown, "; exceptions and the exit status say how it ended"
            )
        return self._end.by_call(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self._end.end(PATIENCE_S, error)

    def _sampling(
        self, call: str, kind: type[Sampling], extra: tuple[Never, ...], version: int | None, attributes: dict[str, Any]
    ) -> Sampling:
        recorder = self._recorder
        if extra:
            refuse_extra(recorder, call, extra, fix=_BY_NAME)
        known = to_whole_or_none(recorder, call, "policy_version", version)
        return kind(self._steps, recorded=self._spans, policy_version=known, attributes=attributes)

    def _consume(
        self,
        call: str,
        tickets: Iterable[Mapping[str, Any]],
        version: int | None,
        step: int | None,
        outcome: str,
        given: GivenScores = NO_SCORES,
        *,
        have_spans: bool = True,
    ) -> None:
        recorder = self._recorder
        number = self._steps.of(call, step)
        if number is not None:
            known = to_whole_or_none(recorder, call, "policy_version", version)
            refuse = partial(recorder.refuse, call)
            now = recorder.clock.now()
            records = consumed(tickets, number, now, known, outcome, refuse, given, have_spans=have_spans)
            for record in records:
                recorder.write(record)


def _is_compiled() -> bool:
    """Return whether `torch.compile` traces this call: what a span calls would break the graph of the function."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)  # old versions have neither this nor the question
    return compiler is not None and getattr(compiler, "is_compiling", bool)()
