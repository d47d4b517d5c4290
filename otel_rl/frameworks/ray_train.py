"""Ray Train: the values that `ray.train.report` gets, and its iterations.

    trainer = TorchTrainer(recorded(train_loop), scaling_config=ScalingConfig(num_workers=2))

A step begins when the one before it is reported. If the loop trains with another framework that is recorded, such as
Lightning, its steps count.
"""

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ray.train.v2._internal.execution.callback import TrainContextCallback
from ray.train.v2._internal.execution.context import get_train_context
from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils

import otel_rl
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording
from otel_rl.frameworks.trainings import elsewhere
from otel_rl.recorder.trainer.current import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from otel_rl.frameworks.patches import Patches

_Loop = TypeVar("_Loop", bound="Callable[..., Any]")
_MARK = "_otel_rl_recorded"
_OTHERS = ("lightning.pytorch", "transformers.trainer")
"""Frameworks whose steps count in their loops inside of Ray Train's."""


def recorded(train_loop: _Loop, **options: Any) -> _Loop:
    """Return a training function that is recorded in each worker. Call this in the driver.

    Args:
        train_loop: The function for the trainer's `train_loop_per_worker`.
        options: Keywords of `otel_rl.init`.

    Raises:
        SettingsError: A setting is wrong.
    """
    if getattr(train_loop, _MARK, False):
        return train_loop
    place = elsewhere(options)

    @functools.wraps(train_loop)
    def call(*args: Any) -> Any:
        return _train(train_loop, args, place)

    setattr(call, _MARK, True)
    return call  # type: ignore[return-value] # it has the signature of the function


class _Phases(TrainContextCallback):
    """Makes phases of what Ray times in a worker."""

    @contextmanager
    def on_report(self) -> Iterator[None]:
        """Record a report, which waits until all workers have reported and the checkpoint is stored."""
        with _phase("report"):
            yield

    @contextmanager
    def on_checkpoint_sync(self) -> Iterator[None]:
        """Record the agreement of the workers on the directory of a checkpoint."""
        with _phase("checkpoint_sync"):
            yield

    @contextmanager
    def on_checkpoint_transfer(self) -> Iterator[None]:
        """Record the upload of a checkpoint."""
        with _phase("checkpoint_transfer"):
            yield


class _TrainWorker:
    """The training function in one worker.

    Args:
        utils: Ray's functions of this worker, the object behind `ray.train.report`.
        options: Keywords of `otel_rl.init`.
    """

    def __init__(self, utils: Any, options: dict[str, Any]) -> None:
        context = utils.get_context()
        self._rank = context.get_world_rank()
        place = {"rank": self._rank, "world_size": context.get_world_size()}
        self._recording = Recording(**(options | place))
        self._next = 1
        if utils.is_distributed():
            ray_context = get_train_context()
            self._next += ray_context.current_report_index
            ray_context.execution_context.train_context_callbacks.append(_Phases())
            if config := ray_context.train_run_context.train_loop_config:
                self._recording.run.params(config)
        self._reports = utils.report
        utils.report = self._report
        self._begin()

    def _begin(self) -> None:
        """Begin the step of the next report, unless another framework makes the steps."""
        last = steps_of(self._recording.run).last_begun
        if last == -1 and any(module in sys.modules for module in _OTHERS):
            return
        if self._recording.number in (last, None if last == -1 else last):
            self._recording.begin_step(self._next)
            self._recording.begin_phase("train_loop")

    def _report(self, metrics: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        self._recording.begin_phase()
        self._reports(metrics, *args, **kwargs)
        with harmless("ray.train.report"):
            steps = steps_of(self._recording.run)
            if self._rank == 0:
                is_mine = steps.last_begun in (-1, self._recording.number)
                step = self._next if is_mine else steps.last_begun
                self._recording.log(metrics, step)
            self._next += 1
            self._begin()

    def end(self, error: BaseException | None = None) -> None:
        """End the run."""
        self._recording.end_step(error)
        self._recording.finish()


def _train(train_loop: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    worker = None
    with harmless("ray_train"):
        worker = _TrainWorker(get_train_fn_utils(), options)
    try:
        answer = train_loop(*args)
    except BaseException as error:
        if worker is not None:
            worker.end(error)
        raise
    if worker is not None:
        worker.end()
    return answer


@contextmanager
def _phase(name: str) -> Iterator[None]:
    if (run := otel_rl.current()) is None:
        yield
        return
    with run.phase(name):
        yield


def patch(module: Any, patches: Patches) -> None:
    """Record the training function of each trainer."""

    def get(function: Callable[..., Any], trainer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        train_loop = function(*args, **kwargs)
        with harmless("train_loop_per_worker"):
            if not getattr(train_loop, _MARK, False):
                return recorded(train_loop)
        return train_loop

    patches.wrap(module, "DataParallelTrainer._get_train_func", get)
