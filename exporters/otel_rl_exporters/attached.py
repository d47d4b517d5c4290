"""The trainer's own W&B, MLflow or SwanLab run, which gets what otel-rl measured and the trainer did not log itself.

These work in the trainer's process, in a thread of their own. Names begin with `otel_rl/`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl.export import MACHINE_AXIS, Machine, Refused, Row
from otel_rl_exporters.swanlab import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item, RunInfo

_PREFIX, _AXIS = "otel_rl/", "otel_rl/step"
_LOOK_S = 0.5
"""Seconds between two looks at the trainer's run when there is nothing new; W&B's service is asked each time."""


class AttachedWandb:
    """Adds rows to `wandb.run`.

    W&B has one counter of steps for all who log to a run, and drops what comes with a step behind it. So a row of ours
    goes into the history row that the trainer is about to log, and the next one waits for the one after: the counter
    never moves for us while the trainer logs. What is left goes at the end. What waits is not safe: after a kill, the
    next start of the trainer adds it to the run that it has then.

    Args:
        run: The run that is shown.
        theirs: The trainer's `wandb.Run`.
    """

    batch_size = 1
    waits = True
    requires = ("wandb",)
    extra = "wandb"

    @classmethod
    def to_what_is_active(cls) -> Callable[[RunInfo], AttachedWandb]:
        """Return what attaches to the W&B run that the trainer has now.

        Raises:
            ValueError: It has none.
        """
        import wandb

        if wandb.run is None:
            raise ValueError("there is no W&B run to attach to; call wandb.init() before otel_rl.init()")
        return partial(cls, theirs=wandb.run)

    def __init__(self, run: RunInfo, *, theirs: Any = None) -> None:
        self._run = theirs
        self._run.define_metric(_AXIS)
        self._run.define_metric(f"{_PREFIX}*", step_metric=_AXIS, step_sync=False)
        self._given = 0
        self._waiting: deque[tuple[int, dict[str, Any]]] = deque()  # with the number of items before it
        self._in_next_row: int | None = None
        self._logged_at = -1
        self._looked_at = 0.0

    def export(self, items: Sequence[Item]) -> None:
        """Put the rows among `items` in the queue, and one of it into the trainer's next history row.

        Raises:
            Refused: The trainer has finished its W&B run.
        """
        for item in items:
            if (values := _measured(item)) and isinstance(item, Row | Machine):
                if self._is_finished:
                    raise Refused("the trainer has finished its W&B run; call finish() of ours before its")
                axis = _AXIS if isinstance(item, Row) else f"{_PREFIX}{MACHINE_AXIS}"
                self._waiting.append((self._given, {**values, axis: item.step}))
            self._given += 1
        with contextlib.suppress(Exception):  # the items are in the queue; what is wrong is told by `durable`
            self._log_one()

    def durable(self) -> int:
        """Count what is in history rows that the trainer has logged."""
        if time.monotonic() - self._looked_at > _LOOK_S and not self._is_finished:
            self._log_one()
        if self._in_next_row is not None:
            return self._in_next_row
        return self._waiting[0][0] if self._waiting else self._given

    def shutdown(self) -> None:
        """Log what is left, in history rows of its own."""
        if self._in_next_row is not None and self._run.step <= self._logged_at:
            self._run.log({}, commit=True)  # our last one waits for a row of the trainer that does not come
        self._in_next_row = None
        while self._waiting:
            self._run.log(self._waiting[0][1])
            self._waiting.popleft()

    def _log_one(self) -> None:
        if not self._waiting and self._in_next_row is None:
            return
        self._looked_at = time.monotonic()
        if self._run.step <= self._logged_at:
            return
        self._in_next_row = None
        if self._waiting:
            self._run.log(self._waiting[0][1], commit=False)
            self._in_next_row, _ = self._waiting.popleft()
            self._logged_at = self._run.step  # asked again: the trainer may have logged in between

    @property
    def _is_finished(self) -> bool:
        return bool(getattr(self._run, "_is_finished", False))


class AttachedMlflow:
    """Adds rows to the MLflow run that is active in the trainer; each value has its step, so nobody is in the way.

    Args:
        run: The run that is shown.
        theirs: Id of the trainer's MLflow run.
    """

    batch_size = 50
    requires = ("mlflow",)
    extra = "mlflow"

    @classmethod
    def to_what_is_active(cls) -> Callable[[RunInfo], AttachedMlflow]:
        """Return what attaches to the MLflow run that is active in this thread.

        Raises:
            ValueError: There is none.
        """
        import mlflow

        active = mlflow.active_run()
        if active is None:
            raise ValueError("there is no MLflow run to attach to; call mlflow.start_run() before otel_rl.init()")
        return partial(cls, theirs=active.info.run_id)

    def __init__(self, run: RunInfo, *, theirs: str = "") -> None:
        import mlflow
        from mlflow.entities import Metric

        self._metric: Any = Metric
        self._client = mlflow.MlflowClient()
        self._run_id = theirs

    def export(self, items: Sequence[Item]) -> None:
        """Log what was measured in the rows among `items`."""
        found = [
            self._metric(name, float(value), item.time_unix_nano // 1_000_000, item.step)
            for item in items
            if isinstance(item, Row | Machine)
            for name, value in _measured(item).items()
        ]
        for begin in range(0, len(found), 1000):
            self._client.log_batch(self._run_id, metrics=found[begin : begin + 1000])

    def shutdown(self) -> None:
        """Do nothing: the run is the trainer's."""


class AttachedSwanlab:
    """Adds rows to the SwanLab run that the trainer has now, at our steps.

    SwanLab has one counter for what is logged without a step: the highest step so far. So a row of ours waits until the
    trainer's counter has come to its step, and what is left goes at the end. Hardware is not added: SwanLab measures
    that of the trainer's process itself. What waits is not safe: after a kill, the next start of the trainer adds it.

    Args:
        run: The run that is shown.
        theirs: The trainer's `swanlab.Run`.
    """

    batch_size = 1
    waits = True
    requires = ("swanlab",)
    extra = "swanlab"

    @classmethod
    def to_what_is_active(cls) -> Callable[[RunInfo], AttachedSwanlab]:
        """Return what attaches to the SwanLab run that the trainer has now.

        Raises:
            ValueError: It has none.
        """
        import swanlab

        try:
            return partial(cls, theirs=swanlab.get_run())
        except RuntimeError:
            problem = "there is no SwanLab run to attach to; call swanlab.init() before otel_rl.init()"
            raise ValueError(problem) from None

    def __init__(self, run: RunInfo, *, theirs: Any = None) -> None:
        self._run = theirs
        self._given = 0
        self._waiting: deque[tuple[int, Row]] = deque()  # with the number of items before it

    def export(self, items: Sequence[Item]) -> None:
        """Log the rows whose steps the trainer has come to, by now."""
        for item in items:
            if isinstance(item, Row) and _measured(item):
                self._waiting.append((self._given, item))
            self._given += 1
        self._log_due()

    def durable(self) -> int:
        """Count what does not wait for the trainer."""
        self._log_due()
        return self._waiting[0][0] if self._waiting else self._given

    def shutdown(self) -> None:
        """Log what is left."""
        while self._waiting:
            self._log(self._waiting[0][1])
            self._waiting.popleft()

    def _log_due(self) -> None:
        counter = getattr(getattr(self._run, "_ctx", None), "_global_step", -1)
        while self._waiting and self._waiting[0][1].step <= counter:
            self._log(self._waiting.popleft()[1])

    def _log(self, row: Row) -> None:
        self._run.log({escape(name): float(value) for name, value in _measured(row).items()}, step=row.step)


def _measured(item: Item) -> dict[str, float]:
    """Return what the trainer did not log itself, under names of ours."""
    if isinstance(item, Machine):
        return {f"{_PREFIX}{name}": value for name, value in item.values.items()}
    if not isinstance(item, Row):
        return {}
    return {f"{_PREFIX}{name}": item.values[name] for name in item.measured if name in item.values}
