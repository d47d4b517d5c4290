"""Tunix: otel-rl's backend next to metrax's in its own logger."""

from functools import partial

from metrax.logging import TensorboardBackend
from tunix.sft.metrics_logger import MetricsLogger, MetricsLoggerOptions

from otel_rl.integrations.tunix import LoggingBackend

ours = partial(LoggingBackend, project="p", id="run", quiet=True, hardware=False)
backends = [partial(TensorboardBackend, log_dir="own"), ours]
logger = MetricsLogger(MetricsLoggerOptions(log_dir="own", backend_kwargs={"custom_backend": backends}))
for step in range(5):
    logger.log("actor", "loss", step / 7, "train", step)
    logger.log("actor", "perplexity", 1.5 + step, "train", step)
logger.log("actor", "loss", 0.25, "eval", 4)
logger.close()
