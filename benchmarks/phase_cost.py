"""The cost of a phase for the trainer, compared with a span of the OTel SDK alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.imaginary_device import ImaginaryDevice, PassedEvent
from benchmarks.measuring import TIMER, Contestant, compared, interleave
from benchmarks.recording import recording
from otel_rl.recorder.devices.clock import DeviceClock
from otel_rl.recorder.trainer.current import recorder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from benchmarks.tables import Table

_PHASE = "otel_rl run.phase"
_PART = "otel_rl trajectory.part"
_PEER = "OTel SDK start_as_current_span"


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def measure() -> list[Table]:
    """Return the cost of a phase and of a span: bare, with attributes, and after pauses."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = provider.get_tracer("benchmark")
    with recording() as run, run.step(0):

        def phase() -> None:
            with run.phase("x"):
                pass

        def span() -> None:
            with tracer.start_as_current_span("x"):
                pass

        def phase_with_attributes() -> None:
            with run.phase("x", tokens=4096, model="policy", temperature=0.7):
                pass

        def span_with_attributes() -> None:
            with tracer.start_as_current_span("x", attributes={"tokens": 4096, "model": "policy", "temperature": 0.7}):
                pass

        def phase_on_a_device() -> None:
            devices.found, devices._clock, devices.silent_until = device, clock, 0
            with run.phase("x"):
                pass
            devices.found, devices._clock = None, None

        def part() -> None:
            with trajectory.part("tool", name="search"):
                pass

        devices = recorder_of(run).devices
        device, clock = ImaginaryDevice(), DeviceClock(PassedEvent, bool)
        flush = provider.force_flush
        bare = [Contestant(_PHASE, phase), Contestant(_PEER, span, flush)]
        full = [
            Contestant("otel_rl run.phase, 3 attributes", phase_with_attributes),
            Contestant(f"{_PEER}, 3 attributes", span_with_attributes, flush),
            Contestant("otel_rl run.phase, on a device", phase_on_a_device),
        ]
        tight = interleave([*bare, *full, TIMER], rounds=15, calls=1000)
        paused = interleave([*bare, TIMER], rounds=7, calls=200, pause_s=0.002)
        with run.trajectory() as trajectory:
            parts = interleave([Contestant(_PHASE, phase), Contestant(_PART, part), TIMER], rounds=15, calls=1000)
    provider.shutdown()
    return [
        compared(
            "One phase or span after the other",
            tight,
            _PEER,
            "Target: a phase takes at most half of a bare span (÷ ≤ 0.50). The SDK exports nowhere, in a "
            "thread. The phase's context is attached and its memory taken; phases that follow each other within "
            "20 µs share a memory snapshot. On a device: its memory is kept at both ends and it is timed, at most a "
            "span (÷ ≤ 1); the device is imaginary and answers at once, so what CUDA takes comes on top.",
            short="SDK span",
        ),
        compared(
            "Each after a pause of 2 ms",
            paused,
            _PEER,
            "Caches are cold, and every phase takes two memory snapshots.",
            short="SDK span",
        ),
        compared(
            "A part of a trajectory",
            parts,
            _PHASE,
            "Target: at most twice a phase in the same trajectory (÷ ≤ 2). It is a call of a tool, with its name as "
            "attribute and without memory snapshots. The time of the trajectory is split at both ends.",
            short="phase",
        ),
    ]
