"""A run as the trainer sees it.

Every call writes a record into the journal of this process and returns; the agent does the rest.
After `init`, nothing here raises into the trainer: what cannot be served is counted and logged.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace

from otel_rl.convert import params
from otel_rl.convert.attributes import clean_attributes
from otel_rl.convert.values import is_plain, sort, to_number
from otel_rl.errors.interrupts import let_pass
from otel_rl.errors.texts import LONGEST_NAME, name_of, shown, text_of, type_of
from otel_rl.journal.ending import Ending, Interpreter, ending_by
from otel_rl.journal.ids import packed_step_ids
from otel_rl.journal.records import TRAINED, Configured, Finished, Happened, Logged, Observed, Tabled
from otel_rl.journal.sink import CLOSED, SILENCE
from otel_rl.trainer.phase import Phase
from otel_rl.trainer.propagation import carrier
from otel_rl.trainer.recorder import STEPS, JournalRecorder
from otel_rl.trainer.spans import NO_SPAN, JournaledSpan, NoSpan, RefusedStep, StepSpan, never_raises
from otel_rl.trainer.tracing import RunTracerProvider
from otel_rl.trainer.trajectories import Rollout, Trajectory, consumed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Never, Self

    from otel_rl.trainer.opening import Unrecorded
    from otel_rl.trainer.session import Session

logger = logging.getLogger("otel_rl")
_NO_VALUES: Mapping[str, object] = MappingProxyType({})
_ARRIVAL_S = 5.0
_PATIENCE_S = 30.0


class Run(JournalRecorder):
    """A run that is being recorded; made by `init`.

    Attributes:
        id: Identity of the run, the same on all ranks and in all attempts.
        attempt: How often this rank of the run was started before.
        prometheus: URL that Prometheus can scrape, `None` if there is none.
        asked_for: The keywords that `init` was called with.
    """

    def __init__(
        self, session: Session | Unrecorded, *, spans: bool, provider_is_global: bool, asked_for: dict[str, object]
    ) -> None:
        self.asked_for = asked_for
        self.id = session.settings.id
        self.attempt = session.attempt
        self.prometheus = session.prometheus
        chosen = session.settings
        super().__init__(
            session.journal,
            session.directory.path / "oom" / f"{session.label}.attempt{self.attempt}",
            clock=chosen.memory.device_clock,
            reset_peaks=chosen.memory.peaks == "reset",
            history=chosen.memory.history,
        )
        self._session = session
        self._spans = spans
        self._ending = threading.RLock()  # a signal handler that interrupts `finish` may call it
        self._finished: Finished | None = None
        self._is_told = self._is_left = False
        self._delivered: bool | None = None
        self._interpreter = Interpreter()
        self._exiting: tuple[Ending, object] | None = None
        self._is_exiting = False
        self.tracer_provider: trace.TracerProvider = RunTracerProvider(self) if spans else trace.NoOpTracerProvider()
        if provider_is_global:
            trace.set_tracer_provider(self.tracer_provider)

    @property
    def dir(self) -> Path:
        """The run directory; another one if somebody moved it."""
        return self._session.directory.path

    def step(self, number: int | None = None, /, *_extra: Never, **attributes: object) -> StepSpan | NoSpan:
        """Return a context manager for one iteration of the RL loop.

        Steps count up. One that is negative, repeated, or inside another is refused, and so is what is logged inside
        without `step=`: both are counted, and logged as warnings.
        """
        if self.clock.monotonic() > self._session.check_at:
            self._session.check()
        try:
            if _extra:
                self._refuse_extra("step", _extra)
            if type(number) is not int:
                number = int.__index__(operator.index(number))  # type: ignore[arg-type] # None is refused too
        except Exception:
            self.refuse("step", f"step {shown(number)} is no integer")
            return RefusedStep(self)
        if not self._last_begun < number < STEPS:
            self.refuse("step", f"step {shown(number)} after step {self._last_begun}; steps count up from 0")
        elif self.open_step is not None and self._is_inside_step():
            self.refuse("step", f"step {number} inside step {self.open_step.number}")
        else:
            return StepSpan(self, number, packed_step_ids(self.id, self.attempt, number), attributes)
        return RefusedStep(self)

    def phase(self, name: str = "", /, *_extra: Never, **attributes: object) -> Phase | NoSpan:
        """Return a context manager for a named stretch of a step; the attributes go to its span.

        In what `torch.compile` compiles it is nothing at all, so that it breaks no graph.
        """
        compiler = getattr(sys.modules.get("torch"), "compiler", None)  # which old versions do not have
        if compiler is not None and getattr(compiler, "is_compiling", bool)():
            return nullcontext(NO_SPAN)  # type: ignore[return-value] # what Dynamo can enter; `as` gives a NoSpan
        if _extra:
            self._refuse_extra("phase", _extra)
        known = name if type(name) is str and len(name) <= LONGEST_NAME else self._cut_name("phase", name)
        return Phase(self, known, attributes) if self._spans else NO_SPAN

    def rollout(self, *_extra: Never, policy_version: int | None = None, **attributes: object) -> Rollout:
        """Return a context manager for a batch of trajectories, with a trace of its own."""
        if _extra:
            self._refuse_extra("rollout", _extra)
        version = self._whole("rollout", "policy_version", policy_version)
        return Rollout(self, recorded=self._spans, policy_version=version, attributes=attributes)

    def trajectory(self, *_extra: Never, policy_version: int | None = None, **attributes: object) -> Trajectory:
        """Return a context manager for one trajectory, with a trace of its own.

        Inside, say `generated` and `rewarded`; what `ticket()` returns goes with the data to the trainer, which hands
        it to `trained` or `dropped`.
        """
        if _extra:
            self._refuse_extra("trajectory", _extra)
        version = self._whole("trajectory", "policy_version", policy_version)
        return Trajectory(self, recorded=self._spans, policy_version=version, attributes=attributes)

    @never_raises
    def trained(
        self, tickets: Iterable[Mapping[str, Any]], *, policy_version: int | None = None, step: int | None = None
    ) -> None:
        """Record that the step trains on these trajectories; its trace links to theirs.

        Args:
            tickets: A ticket of each; or what is known of it: `policy_version`, `tokens`, `reward`.
            policy_version: Version of the policy that is trained now; staleness counts from it.
            step: Iteration of the RL loop; as in `log`.
        """
        self._consume("trained", tickets, policy_version, step, TRAINED)

    @never_raises
    def dropped(
        self,
        tickets: Iterable[Mapping[str, Any]],
        *,
        reason: str,
        policy_version: int | None = None,
        step: int | None = None,
    ) -> None:
        """Record that these trajectories are not trained on, and why: stale, filtered, aborted, or whatever it is."""
        self._consume("dropped", tickets, policy_version, step, text_of(reason))

    @never_raises
    def queue(self, name: str, *, depth: float, waited: float = 0.0, step: int | None = None) -> None:
        """Record how much is in a queue, and for how many seconds one had to wait for it.

        Of several calls in a step, by whatever rank, the depths are averaged and the waits added up.
        """
        label = text_of(name)
        values = {f"queue/{label}/depth@mean": [depth], f"queue/{label}/wait@sum": [waited]}
        self.log(values, step=step)

    def log(
        self,
        values: Mapping[str, object] = _NO_VALUES,
        *_extra: Never,
        step: int | None = None,
        weight: float = 1,
        **_unknown: Never,
    ) -> None:
        """Record the values of metrics; they are durable when this returns.

        They belong to `step`, else to the step that is open, else to the last one. Values are floats, ints, and
        NumPy or torch scalars; others are refused, one by one. What lies on a GPU is copied behind the work that
        makes it and recorded when it has arrived: nothing waits for it, and it is the value of this moment.

        A list or 1-D array is samples: those of all calls and ranks in the step are pooled, and `name` becomes
        `name/mean`, `name/max` and so on; under `name@max` it is this one statistic, named `name`.

        Args:
            values: Value by name, in the framework's own spelling.
            step: Iteration of the RL loop.
            weight: How many samples the scalars stand for; means over ranks are weighted by it.
        """
        try:
            clock = self.clock
            ticks = clock.monotonic()
            if ticks > self._session.check_at:
                self._session.check()
            if _extra or _unknown:
                self._refuse_extra("log", _extra, _unknown)
                if _extra:  # a step, perhaps: then these are of another one than the open one
                    return
            number = self._step_of("log", step)
            if number is None:
                return
            samples = on_device = None
            if not is_plain(values):
                values, samples, on_device = sort(values, self.refuse)
            if type(weight) is not int or weight != 1:
                weight = self._weight(weight)
            now = clock.anchor + ticks
            if values:
                self.write(Logged(number, now, values, weight))  # type: ignore[arg-type] # is_plain, or made so
            if samples:
                self.write(Observed(number, now, samples))
            if on_device:
                self.devices.take_values(on_device, number, weight)
        except Exception as error:
            self.refuse_error("log", error)

    @never_raises
    def table(self, name: str, data: object, *, step: int | None = None) -> None:
        """Record a table, such as prompts, completions and rewards.

        Text leaves the process only where `content=True` was given to `init`; without it the cells are empty.
        Secrets are redacted; rows and texts beyond the limits are cut, and counted.

        Args:
            name: What trackers call it.
            data: Sequence by column, or a sequence of mappings, one for each row.
            step: Iteration of the RL loop; as in `log`.
        """
        from otel_rl.convert import tables  # where there are tables

        number = self._step_of("table", step)
        if number is None:
            return
        columns = self._columns(name, tables.to_columns(data))
        if not columns:
            return
        found = tables.clean(columns, with_text=self._session.settings.content, limits=tables.Limits())
        if found.cut_rows or found.cut_cells:
            cut = f"{found.cut_rows} rows and {found.cut_cells} texts are beyond the limits"
            self.refuse("table_limits", f"table {text_of(name)}: {cut}")
        now = self.clock.now()
        called = self._cut_name("table", name)
        self.write(Tabled(number, now, called, list(found.columns), found.rows, found.cut_rows))

    def _columns(self, table: object, columns: Mapping[str, list[object]]) -> dict[str, list[object]]:
        """Return the columns whose names a record can hold; the others are refused, one by one."""
        found: dict[str, list[object]] = {}
        for name, cells in columns.items():
            try:
                known = name_of(name)
                if known in found:
                    raise ValueError(f"two columns are called {shown(known)}")
                found[known] = cells
            except ValueError as error:
                self.refuse("table", f"table {text_of(table)}: {error}")
        return found

    @never_raises
    def samples(
        self,
        prompts: Sequence[str],
        completions: Sequence[object],
        *,
        step: int | None = None,
        name: str = "completions",
        **columns: object,
    ) -> None:
        """Record what was generated for which prompt, and how it was rewarded, as a table.

        `otel_rl.convert.completions.completions_table` describes the columns, and what else may be given: rewards,
        advantages, reward_components, q_mass, update_weights, group_size.
        """
        from otel_rl.convert.completions import completions_table

        number = self._step_of("samples", step)
        if number is not None:
            self.table(name, completions_table(number, prompts, completions, **columns), step=step)  # type: ignore[arg-type]

    @never_raises
    def params(self, values: object) -> None:
        """Record hyper-parameters: a mapping or an object with fields, flattened with `.`, secrets redacted."""
        self.write(Configured(self.clock.now(), params.flatten(values, self.refuse)))

    @never_raises
    def event(self, name: str, /, **attributes: object) -> None:
        """Record something that happened once, at the step and in the span that are open."""
        span = trace.get_current_span()
        here = span if isinstance(span, JournaledSpan) else None
        self.write(
            Happened(
                self._cut_name("event", name),
                self.clock.now(),
                clean_attributes(attributes, self.refuse),
                self._step_now,
                b"" if here is None else here.trace_id,
                0 if here is None else here.span_id,
            )
        )

    def environment(self, *_extra: Never, **_unknown: Never) -> dict[str, str]:
        """Return variables with which another process joins this run, under the span that is current here.

        For `subprocess`, multiprocessing, or Ray's `runtime_env={"env_vars": run.environment()}`; the other process
        calls `init(role="reward")`, or whatever it is.
        """
        if _extra or _unknown:
            self._refuse_extra("environment", _extra, _unknown)
        chosen = self._session.settings
        variables = {
            "OTEL_RL_RUN_ID": self.id,
            "OTEL_RL_DIR": str(Path(chosen.dir).absolute()),
            "OTEL_RL_PROJECT": chosen.project,
            "OTEL_RL_NAME": chosen.name,
        }
        if chosen.head:
            variables["OTEL_RL_HEAD"] = chosen.head
        return variables | {name.upper(): text for name, text in carrier().items()}

    def finish(self, timeout: float = _PATIENCE_S, *_extra: Never, **_unknown: Never) -> bool:
        """End the run and wait for the exporters; return whether everything was delivered in time.

        It is false too if something was refused, here (`refused` says what) or by an exporter, or was lost: then not
        everything is there. One warning says why it is false. It is about this process: rows of other ranks, and of
        their earlier attempts that were killed, may still be on their way. What was not delivered is in the journal:
        the agent goes on, and the next one delivers the rest. Called inside `except` or `finally`, it records that the
        run failed. A second call, from whatever thread or signal handler, waits for the same result.
        """
        if _extra or _unknown:
            self._refuse_extra("finish", _extra, _unknown)
        return self._finish(timeout, self._interpreter.handled())

    def failed(self, span: JournaledSpan, error: BaseException) -> None:
        """Report the exception if memory ran out; remember it if it may end the process."""
        super().failed(span, error)
        if isinstance(error, SystemExit):
            self._exiting = ending_by(error), self._place()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        self._finish(_PATIENCE_S, error)

    def _finish_at_exit(self) -> None:
        """End the run with its process; its exit status, which is not known yet, has the last word."""
        self._is_exiting = True
        self._finish_child()

    def _finish_child(self) -> None:
        """End the run with its process, which ends without `atexit`, by the exception that ends it."""
        error = self._interpreter.handled() or self._interpreter.uncaught()
        exiting = self._exiting
        if error is None and exiting is not None and exiting[1] == self._place():  # nothing was recorded since
            self._finish(0, None, exiting[0])
        else:
            self._finish(0, error)

    def _place(self) -> object:
        """Return how far the journal is; at the exit it shows whether the run went on after an exception."""
        return getattr(self._journal, "position", None)

    def _finish(self, timeout: float, error: BaseException | None, ending: Ending | None = None) -> bool:
        if self._journal is SILENCE:
            return False
        seconds = self._seconds(timeout)
        deadline = time.monotonic() + seconds
        if not self._ending.acquire(timeout=seconds):
            return bool(self._delivered)
        try:
            if self._delivered is None:
                self._end_record(error, ending_by(error) if ending is None else ending, min(seconds, _ARRIVAL_S))
                delivered = self._session.wait_until_delivered(max(0.0, deadline - time.monotonic()))
                self._delivered = delivered and not self._has_lost
                if not self._delivered:
                    self._say_why(delivered=delivered, waited=seconds)
        except Exception as failure:
            let_pass(failure)
            what = f"{type_of(failure)}: {text_of(failure)}".replace("\n", " ")
            logger.warning("could not end the run in order; what was recorded is in %s: %s", self.dir, what)
            self._delivered = False
        finally:
            self._ending.release()
        return bool(self._delivered)

    def _say_why(self, *, delivered: bool, waited: float) -> None:
        """Log in one line what of the run is not in every tracker; not what nobody has waited for."""
        why = []
        if self._has_lost:
            counts = ", ".join(f"{count} {reason}" for reason, count in self._refusals.items())
            why.append(f"refused: {counts} (see the warnings above)")
        if not delivered and waited and (missing := self._session.missing()):
            why.append(missing)
        if why:
            logger.warning("run %s is not complete: %s", self.id, "; ".join(why))

    def _end_record(self, error: BaseException | None, ending: Ending, arrival_s: float) -> None:
        """Write the last record and close the journal; each line may come twice, after an interrupt."""
        global _current
        if self._finished is None:
            self._end_spans(error)
            self.devices.wait(arrival_s)
            self._finished = Finished(self.clock.now(), *ending)
        self._journal = CLOSED
        if not self._is_told:
            self._is_left = self._is_exiting and self._session.leave(self._finished)
            try:
                if not self._is_left:
                    self._session.journal.append(self._finished)
            except Exception as failure:
                self.refuse_error("record", failure)
            self._is_told = True
        if _current is self:
            _current = None
        self._session.close(at_exit=self._is_left)
        self.memory.close()

    def _end_spans(self, error: BaseException | None) -> None:
        """End the spans that are current here, and the step, by what ends the run; none is current afterwards."""
        span, outer = trace.get_current_span(), None
        while isinstance(span, JournaledSpan):
            self._end_span(span, error)
            outer = span.outer
            span = trace.get_current_span(outer)
        if outer is not None:
            context.attach(outer)
        if self.open_step is not None:
            self._end_span(self.open_step, error)

    @staticmethod
    def _end_span(span: JournaledSpan, error: BaseException | None) -> None:
        if error is not None and span.is_recording() and ending_by(error).outcome != "finished":
            span.fail(error)
        span.end()

    def _refuse_extra(
        self, call: str, extra: tuple[object, ...], unknown: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        """Refuse arguments that a call does not have, as a typing error that ends no training."""
        given = [*map(shown, extra), *(f"{name}={shown(value)}" for name, value in unknown.items())]
        self.refuse(call, f"{call}() does not take {', '.join(given)}")

    def _cut_name(self, call: str, name: object) -> str:
        """Return the text of a name; that it is cut is counted."""
        if isinstance(name, str) and str.__len__(name) > LONGEST_NAME:
            self.refuse("name", f"{call} {shown(name)}: its name is cut to {LONGEST_NAME} characters")
        return text_of(name)

    def _seconds(self, timeout: object) -> float:
        """Return a time to wait that was given, 30 s where it is none."""
        try:
            seconds = float(timeout)  # type: ignore[arg-type] # what cannot be converted raises
            if not math.isnan(seconds):
                return min(max(seconds, 0.0), threading.TIMEOUT_MAX / 2)
        except Exception as error:
            let_pass(error)
        self.refuse("timeout", f"finish(timeout={shown(timeout)}): not a number of seconds")
        return _PATIENCE_S

    def _weight(self, weight: object) -> int | float:
        """Return a weight that was given, 1 where it is none."""
        try:
            found = to_number(weight)
            if 0 <= found < math.inf:
                return found
            self.refuse("weight", f"log: weight={found}: not a number of samples")
        except Exception as error:
            self.refuse("weight", f"log: weight: {text_of(error)}")
        return 1

    def _consume(
        self, call: str, tickets: Iterable[Mapping[str, Any]], version: int | None, step: int | None, outcome: str
    ) -> None:
        number = self._step_of(call, step)
        if number is not None:
            known = self._whole(call, "policy_version", version)
            records = consumed(tickets, number, self.clock.now(), known, outcome, partial(self.refuse, call))
            for record in records:
                self.write(record)


_current: Run | None = None


def current() -> Run | None:
    """Return the run of this process, if there is one."""
    return _current


def make_current(run: Run) -> None:
    """Take note that this is the run of this process, until it is finished."""
    global _current
    _current = run


def _silence_child() -> None:
    global _current
    if _current is not None:
        _current._go_silent()
        _current = None


os.register_at_fork(after_in_child=_silence_child)
