"""The names that are emitted; `registry.yaml` describes each of them, and this module spells them once.

`rl.*` follows open-telemetry/semantic-conventions-genai#88 where that proposal has a name.
"""

from __future__ import annotations

RUN_ID = "rl.run.id"
RUN_NAME = "rl.run.name"
RUN_PROJECT = "rl.run.project"
RUN_ATTEMPT = "rl.run.attempt"
RANK = "rl.rank"
ROLE = "rl.role"
LOOP_ITERATION = "rl.loop.iteration"
PHASE = "rl.phase"
CLOCK = "rl.clock"
MISSING_RANKS = "rl.step.missing_ranks"
STEP_VALUES = "rl.step.values"
STEP_LATE = "rl.step.late"
CONFIG_VALUES = "rl.run.config.values"
STATISTIC = "rl.statistic"
LOGGED_NAME = "rl.metric.name"
PROCESS_LOST = "rl.process.lost"
MEMORY_START = "process.memory.usage.start"
MEMORY_END = "process.memory.usage.end"
ERROR_TYPE = "error.type"
EXPORTER = "rl.exporter"

EVENT_STEP_METRICS = "rl.step.metrics"
EVENT_RUN_CONFIG = "rl.run.config"

SPAN_LOOP = "rl.loop"

METRIC_STEP_CURRENT = "rl.step.current"
METRIC_STEP_LAST_COMPLETED = "rl.step.last_completed.timestamp"
METRIC_LOOP_DURATION = "rl.loop.duration"
METRIC_PHASE_DURATION = "rl.phase.duration"
METRIC_TRAIN_STEPS = "rl.train.steps"
METRIC_ANY = "rl.metric"
METRIC_NONFINITE = "rl.numerics.nonfinite"
METRIC_PROCESSES_LOST = "rl.processes.lost"
METRIC_PROCESS_MEMORY = "process.memory.usage"
METRIC_PROCESS_VIRTUAL_MEMORY = "process.memory.virtual"
METRIC_REFUSED = "rl.telemetry.refused"
METRIC_DROPPED = "rl.telemetry.dropped"
METRIC_DELIVERED = "rl.telemetry.delivered"
METRIC_FAILURES = "rl.telemetry.failures"
