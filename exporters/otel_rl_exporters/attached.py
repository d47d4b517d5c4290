"""Exporters into the trainer's own W&B, MLflow or SwanLab run, for values that the trainer did not log itself.

They run in a background thread of the trainer's process. Names begin with `otel_rl/`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from otel_rl.export import Machine, Refused, Row
from otel_rl.recorder.errors.sinks import log_of
from otel_rl_exporters.swanlab import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item, RunInfo

logger = log_of(__name__)
_PREFIX, _AXIS = "otel_rl/", "otel_rl/step"
_LOOK_S = 0.5
"""Seconds between two checks of the trainer's run when there is nothing new. Each check calls W&B's service."""


class AttachedWandb:
    """Adds rows to `wandb.run`.

    W&B has one step counter per run, and drops values with a step behind it. So otel-rl's row goes into the history row
    that the trainer is about to log, and the next row waits for the next history row. otel-rl does not move the counter
    while the trainer logs. Waiting rows are logged at the end. They are not durable in W&B: after a kill, the next
    start of the trainer adds them to the run that it has then.
    """

    batch_size = 1
    waits = True
    requires = ("wandb",)
    extra = "wandb"

    @classmethod
    def to_what_is_active(cls) -> Callable[[RunInfo], AttachedWandb]:
        """Return a factory of exporters into the trainer's current W&B run.

        Raises:
            ValueError: The trainer has no run.
        """
        import wandb

        if wandb.run is None:
            raise ValueError("there is no W&B run to attach to; call wandb.init() before otel_rl.init()")
        return partial(cls, active=wandb.run)

    def __init__(self, run: RunInfo, *, active: Any = None) -> None:
        self._run = active
        self._run.define_metric(_AXIS)
        self._run.define_metric(f"{_PREFIX}*", step_metric=_AXIS, step_sync=False)
        lost = "rows after the end of the trainer's W&B run are lost"
        self._is_finished = _private("wandb", active, "_is_finished", otherwise=False, effect=lost)
        self._given = 0
        self._waiting: deque[tuple[int, dict[str, Any]]] = deque()  # with the number of items before it
        self._in_next_row: int | None = None
        self._logged_at = -1
        self._looked_at = 0.0

    def export(self, items: Sequence[Item]) -> None:
        """Queue the rows among `items`, and add one of the queue to the trainer's next history row.

        Raises:
            Refused: The trainer has finished its W&B run.
        """
        for item in items:
            if (values := _measured(item)) and isinstance(item, Row | Machine):
                if self._is_finished():
                    raise Refused("the trainer has finished its W&B run; call finish() of otel-rl's run first")
                axis = _AXIS if isinstance(item, Row) else f"{_PREFIX}{item.axis}"
                self._waiting.append((self._given, {**values, axis: item.step}))
            self._given += 1
        with contextlib.suppress(Exception):  # the items are in the queue; `durable` raises the error again
            self._log_one()

    def durable(self) -> int:
        """Return the number of items in history rows that the trainer has logged."""
        if time.monotonic() - self._looked_at > _LOOK_S and not self._is_finished():
            self._log_one()
        if self._in_next_row is not None:
            return self._in_next_row
        return self._waiting[0][0] if self._waiting else self._given

    def shutdown(self) -> None:
        """Log the waiting rows, each in another history row."""
        if self._in_next_row is not None and self._run.step <= self._logged_at:
            self._run.log({}, commit=True)  # the last row waits for a history row of the trainer, which does not come
        self._in_next_row = None
        while self._waiting:
            # Removed after the call: a row for which W&B raises is still the first one, and not durable.
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
            self._logged_at = self._run.step  # read again: the trainer may have logged in between


class AttachedMlflow:
    """Adds rows to the MLflow run that is active in the trainer. Each value has its step, so order does not matter."""

    batch_size = 50
    requires = ("mlflow",)
    extra = "mlflow"

    @classmethod
    def to_what_is_active(cls) -> Callable[[RunInfo], AttachedMlflow]:
        """Return a factory of exporters into the MLflow run that is active in this thread.

        Raises:
            ValueError: No run is active.
        """
        import mlflow

        active = mlflow.active_run()
        if active is None:
            raise ValueError("there is no MLflow run to attach to; call mlflow.start_run() before otel_rl.init()")
        return partial(cls, active=active.info.run_id)

    def __init__(self, run: RunInfo, *, active: str = "") -> None:
        import mlflow
        from mlflow.entities import Metric

        self._metric: Any = Metric
        self._client = mlflow.MlflowClient()
        self._run_id = active

    def export(self, items: Sequence[Item]) -> None:
        """Log the measured values of the rows among `items`."""
        metrics = [
            self._metric(name, float(value), item.time_unix_nano // 1_000_000, item.step)
            for item in items
            if isinstance(item, Row | Machine)
            for name, value in _measured(item).items()
        ]
        for begin in range(0, len(metrics), 1000):
            self._client.log_batch(self._run_id, metrics=metrics[begin : begin + 1000])

    def shutdown(self) -> None:
        """Do nothing: the run is the trainer's."""


class AttachedSwanlab:
    """Adds rows to the trainer's current SwanLab run, at otel-rl's steps.

    For values without a step, SwanLab uses the highest step so far. So a row waits until the trainer's counter has
    reached its step. Waiting rows are logged at the end. They are not durable in SwanLab: after a kill, the next start
    of the trainer adds them. Hardware is not added, because SwanLab measures the hardware of the trainer's process
    itself.
    """

    batch_size = 1
    waits = True
    requires = ("swanlab",)
    extra = "swanlab"

    @classmethod
    def to_what_is_active(cls) -> Callable[[RunInfo], AttachedSwanlab]:
        """Return a factory of exporters into the trainer's current SwanLab run.

        Raises:
            ValueError: The trainer has no run.
        """
        import swanlab

        try:
            return partial(cls, active=swanlab.get_run())
        except RuntimeError:
            problem = "there is no SwanLab run to attach to; call swanlab.init() before otel_rl.init()"
            raise ValueError(problem) from None

    def __init__(self, run: RunInfo, *, active: Any = None) -> None:
        self._run = active
        late = "all rows are logged when otel-rl's run ends"
        self._step = _private("swanlab", active, "_ctx._global_step", otherwise=-1, effect=late)
        self._given = 0
        self._waiting: deque[tuple[int, Row]] = deque()  # with the number of items before it

    def export(self, items: Sequence[Item]) -> None:
        """Log the rows whose steps the trainer has reached."""
        for item in items:
            if isinstance(item, Row) and _measured(item):
                self._waiting.append((self._given, item))
            self._given += 1
        self._log_due()

    def durable(self) -> int:
        """Return the number of items that do not wait for the trainer."""
        self._log_due()
        return self._waiting[0][0] if self._waiting else self._given

    def shutdown(self) -> None:
        """Log the waiting rows."""
        while self._waiting:
            self._log(self._waiting[0][1])
            self._waiting.popleft()

    def _log_due(self) -> None:
        step = self._step()
        while self._waiting and self._waiting[0][1].step <= step:
            self._log(self._waiting.popleft()[1])

    def _log(self, row: Row) -> None:
        self._run.log({escape(name): float(value) for name, value in _measured(row).items()}, step=row.step)


def _private(package: str, run: Any, path: str, *, otherwise: Any, effect: str) -> Callable[[], Any]:
    """Return a function that reads an attribute which the tracker does not promise; warn if its version has none."""

    def read() -> Any:
        try:
            return attrgetter(path)(run)
        except AttributeError:
            return otherwise

    try:
        attrgetter(path)(run)
    except AttributeError:
        logger.warning("the run of %s %s has no attribute %s: %s", package, version(package), path, effect)
    return read


def _measured(item: Item) -> dict[str, float]:
    """Return the values that the trainer did not log itself, under `otel_rl/` names."""
    if isinstance(item, Machine):
        return {f"{_PREFIX}{name}": value for name, value in item.values.items()}
    if not isinstance(item, Row):
        return {}
    return {f"{_PREFIX}{name}": item.values[name] for name in item.measured if name in item.values}
