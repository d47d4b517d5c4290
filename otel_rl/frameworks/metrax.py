"""metrax: a backend for its loggers, and for any listener of `jax.monitoring`.

    backend = LoggingBackend(project="sft")
    jax.monitoring.register_scalar_listener(backend.log_scalar)

JAX reports when a compilation begins as a value, the time of day, which is not recorded. Each compilation is a phase
`compile` instead.
"""

from __future__ import annotations

from typing import Any

from jax import monitoring

import otel_rl
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording
from otel_rl.recorder.trainer.phase import Phase

_JAX = "/jax/"
_COMPILE = "/jax/core/compile/backend_compile_duration"


class LoggingBackend:
    """A backend of metrax that records.

    Args:
        options: Keywords of `otel_rl.init`; without effect if a run exists.
    """

    def __init__(self, **options: Any) -> None:
        self._recording: Recording | None = Recording(**{"dialect": "tunix", **options})
        monitoring.register_event_time_span_listener(self._compiled)

    def log_scalar(self, event: str, value: Any, **kwargs: Any) -> None:
        """Record a value. After `close` do nothing: JAX still calls it, with values of other loggers."""
        if self._recording is not None and not event.startswith(_JAX):
            with harmless("log_scalar"):
                self._recording.log({event.lstrip("/"): value}, int(kwargs.get("step") or 0))

    def close(self) -> None:
        """End the step, and the run if this object began it."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.finish()

    def _compiled(self, event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
        run = otel_rl.current()
        if event == _COMPILE and self._recording is not None and run is not None:
            with harmless("compile"):
                phase = run.phase("compile", function=str(kwargs.get("fun_name", "")))
                if isinstance(phase, Phase):
                    phase.begin(start_time=round(start_time * 1e9)).end(round(end_time * 1e9))
