"""otel-rl: the flight recorder for RL post-training.

A trainer marks its steps and phases and logs its values; every fact is in a local journal before the
call returns. One agent process on each machine turns the journals into OpenTelemetry metrics, spans
and events, and into exact rows for trackers.
"""

from otel_rl.carriers import attach, carrier
from otel_rl.decorator import traced
from otel_rl.run import Run, current
from otel_rl.settings import SettingsError
from otel_rl.start import init

__all__ = ["Run", "SettingsError", "attach", "carrier", "current", "init", "traced"]
