"""The peers of `run.log`: the same dict of floats, given to what trainers use today."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.measuring import Contestant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.sdk.metrics.export import MetricsData

Values = dict[str, float]


def batches(metrics: int = 100) -> Iterator[Values]:
    """Return dicts of `metrics` floats without end, with other values from one to the next."""
    names = [f"actor/metric_{index:03d}" for index in range(metrics)]
    return itertools.cycle([{name: index * 1.1 + seed / 7 for index, name in enumerate(names)} for seed in range(64)])


@contextmanager
def wandb_offline(directory: Path) -> Iterator[Contestant]:
    """W&B, writing its file; hands each row to its own process."""
    import wandb

    quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True)
    run = wandb.init(mode="offline", dir=str(directory), project="benchmark", settings=quiet)
    values = batches()
    yield Contestant("wandb.log, offline", lambda: run.log(next(values)), lambda: time.sleep(0.5))
    run.finish()


@contextmanager
def tensorboard_event(directory: Path) -> Iterator[Contestant]:
    """TensorBoard's own writer, one event with all scalars; queued for its thread."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer, values, steps = EventFileWriter(str(directory)), batches(), itertools.count()

    def log() -> None:
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in next(values).items()]
        writer.add_event(Event(wall_time=time.time(), step=next(steps), summary=Summary(value=scalars)))

    yield Contestant("TensorBoard add_event, one of 100 scalars", log, writer.flush)
    writer.close()


@contextmanager
def torch_summary_writer(directory: Path) -> Iterator[Contestant]:
    """The call that most trainers make: one `add_scalar` for each metric."""
    from torch.utils.tensorboard import SummaryWriter

    writer, values, steps = SummaryWriter(str(directory)), batches(), itertools.count()

    def log() -> None:
        step = next(steps)
        for name, value in next(values).items():
            writer.add_scalar(name, value, step)

    yield Contestant("torch SummaryWriter, 100 add_scalar", log, writer.flush)
    writer.close()


@contextmanager
def otel_gauges() -> Iterator[Contestant]:
    """The OTel SDK in the trainer: one gauge for each metric, exported by a thread."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader

    class Nowhere(MetricExporter):
        def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: object) -> MetricExportResult:
            return MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **_: object) -> None:
            """Do nothing."""

    provider = MeterProvider([PeriodicExportingMetricReader(Nowhere())], shutdown_on_exit=False)
    meter, values = provider.get_meter("benchmark"), batches()
    gauges = {name: meter.create_gauge(name) for name in next(values)}

    def log() -> None:
        for name, value in next(values).items():
            gauges[name].set(value)

    yield Contestant("OTel SDK, 100 gauge.set", log, provider.force_flush)
    provider.shutdown()


@contextmanager
def json_lines(directory: Path) -> Iterator[Contestant]:
    """A line of JSON written by hand, and flushed so that it survives the process."""
    values = batches()
    with (directory / "by_hand.jsonl").open("w") as file:

        def log() -> None:
            file.write(json.dumps(next(values)) + "\n")
            file.flush()

        yield Contestant("json.dumps, write, flush", log)
