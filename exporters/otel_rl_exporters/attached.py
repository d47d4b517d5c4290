"""The trainer's own W&B, MLflow or SwanLab run, which gets what otel-rl measured and the trainer did not log itself.

These work in the trainer's process, in a thread of their own. Names begin with `otel_rl/`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl.export import MACHINE_AXIS, Machine, Refused, Row
from otel_rl_exporters.swanlab import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_rl.export import Item, RunInfo

_PREFIX, _AXIS = "otel_rl/", "otel_rl/step"


class AttachedWandb:
    """Adds rows to `wandb.run`.

    W&B has one counter of steps for all who log to a run, and drops what comes with a step behind it. So a row of ours
    goes into the history row that the trainer is about to log, and the next one waits for the one after: the counter
    never moves for us while the trainer logs. What is left goes at the end.

    Args:
        run: The run that is shown.
        theirs: The trainer's `wandb.Run`.
    """

    batch_size = 1
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
        self._waiting: deque[dict[str, Any]] = deque()
        self._logged_at = -1

    def export(self, items: Sequence[Item]) -> None:
        """Put the rows among `items` in the queue, and one of it into the trainer's next history row.

        Raises:
            Refused: The trainer has finished its W&B run.
        """
        for item in items:
            if (values := _measured(item)) and isinstance(item, Row | Machine):
                axis = _AXIS if isinstance(item, Row) else f"{_PREFIX}{MACHINE_AXIS}"
                self._waiting.append({**values, axis: item.step})
        self._log_one()

    def shutdown(self) -> None:
        """Log what is left, in history rows of its own."""
        if self._waiting and self._run.step <= self._logged_at:
            self._run.log({}, commit=True)  # our last one waits for a row of the trainer that does not come
        while self._waiting:
            self._run.log(self._waiting.popleft())

    def _log_one(self) -> None:
        if not self._waiting:
            return
        try:
            if self._run.step > self._logged_at:
                self._run.log(self._waiting[0], commit=False)
                self._waiting.popleft()
                self._logged_at = self._run.step  # asked again: the trainer may have logged in between
        except Exception as error:
            if getattr(self._run, "_is_finished", False):
                raise Refused("the trainer has finished its W&B run; call finish() of ours before its") from error
            raise


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
    that of the trainer's process itself.

    Args:
        run: The run that is shown.
        theirs: The trainer's `swanlab.Run`.
    """

    batch_size = 1
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
        self._waiting: deque[Row] = deque()

    def export(self, items: Sequence[Item]) -> None:
        """Log the rows whose steps the trainer has come to, by now."""
        self._waiting.extend(item for item in items if isinstance(item, Row) and _measured(item))
        counter = getattr(getattr(self._run, "_ctx", None), "_global_step", -1)
        while self._waiting and self._waiting[0].step <= counter:
            self._log(self._waiting.popleft())

    def shutdown(self) -> None:
        """Log what is left."""
        while self._waiting:
            self._log(self._waiting.popleft())

    def _log(self, row: Row) -> None:
        self._run.log({escape(name): float(value) for name, value in _measured(row).items()}, step=row.step)


def _measured(item: Item) -> dict[str, float]:
    """Return what the trainer did not log itself, under names of ours."""
    if isinstance(item, Machine):
        return {f"{_PREFIX}{name}": value for name, value in item.values.items()}
    if not isinstance(item, Row):
        return {}
    return {f"{_PREFIX}{name}": item.values[name] for name in item.measured if name in item.values}
