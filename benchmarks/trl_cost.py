"""The time that recording adds to a step of TRL's GRPOTrainer on a CPU: `python -m benchmarks trl`; needs TRL."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.recording import directory
from benchmarks.tables import Cell, Table

_TRAINER = Path(__file__).parents[1] / "tests" / "frameworks" / "examples" / "trl_grpo.py"
_SIZES = {32: 600, 1024: 480}
"""Steps by the model's width."""
_BLOCK = 3
"""Steps with recording, then as many without: so many, as every third one is evaluated."""
_RUN = f"""
import json, sys, time
sys.path.insert(0, {str(_TRAINER.parent)!r})
from otel_rl.frameworks.instrument import instrument
instrument()
import torch, trl_grpo
from otel_rl.frameworks.trl import OtelRlCallback
from otel_rl.recorder.trainer import current
from otel_rl.recorder.trainer.phase import Phase
from otel_rl.recorder.trainer.run import Run
from otel_rl.recorder.trainer.step import StepSpan
from transformers import TrainerCallback

inside = [0.0]

def clocked(kind, name):
    call = getattr(kind, name)
    def timed(*args, **kwargs):
        begin = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            inside[0] += time.perf_counter() - begin
    setattr(kind, name, timed)

for kind, name in [(Phase, "__enter__"), (Phase, "__exit__"), (StepSpan, "__enter__"), (StepSpan, "__exit__"),
                   (Run, "phase"), (Run, "log")]:
    clocked(kind, name)

class Switch(TrainerCallback):
    def __init__(self, recorder):
        self.recorder, self.recording, self.times = recorder, None, []
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step % {_BLOCK}:
            return
        self.recorder._end_step()
        self.times.append(time.perf_counter())
        if self.recording is None:
            self.recording, self.recorder._recording = self.recorder._recording, None
            current._open.clear()
        else:
            self.recorder._recording, self.recording = self.recording, None
            current.add(self.recorder._recording.run)

torch.set_num_threads(1)
trainer = trl_grpo.trainer(int(sys.argv[1]), width=int(sys.argv[2]))
trainer.args.save_strategy = "no"
callbacks = trainer.callback_handler.callbacks
callbacks.insert(0, Switch(next(one for one in callbacks if isinstance(one, OtelRlCallback))))
trainer.train()
print(json.dumps([callbacks[0].times, inside[0]]))
"""


def measure() -> list[Table]:
    """Return the time of a step with and without otel-rl, in turns."""
    title = "A step of TRL's GRPOTrainer"
    if importlib.util.find_spec("trl") is None:
        return [Table(title, ["what"], [["TRL is not installed"]], "")]
    columns = ["model's width", "pairs", "plain, ms", "inside otel-rl, ms", "difference, ms", "ratio", "its quartiles"]
    note = (
        f"One training each, recorded for {_BLOCK} steps and then not for {_BLOCK}, by turns; medians over pairs of "
        "neighbours, the first four left out. The model has two layers; the narrow one is as quick as TRL can be. "
        "Every step is logged, every third one evaluated; nothing is saved, as the disk is another matter. About 25 "
        "phases a step are recorded. Torch has one core, the agent the other. What is not recorded still passes "
        "through the hooks. 'Inside' is the time in calls of otel-rl, clocked around each: what a step costs the "
        "trainer's thread; the difference has the agent in it too, and the machine's other tenants."
    )
    return [Table(title, columns, [_row(width, steps) for width, steps in _SIZES.items()], note)]


def _row(width: int, steps: int) -> list[Cell]:
    times, inside = _times(steps, width)
    blocks = [(end - begin) * 1e3 / _BLOCK for begin, end in itertools.pairwise(times)]
    pairs = list(zip(blocks[0::2], blocks[1::2], strict=False))[4:]
    ratios = [recorded / plain for plain, recorded in pairs]
    low, median, high = statistics.quantiles(ratios, n=4)
    plain = statistics.median(plain for plain, _ in pairs)
    difference = statistics.median(recorded - plain for plain, recorded in pairs)
    return [width, len(pairs), plain, inside * 1e3 / (steps / 2), difference, median, f"{low:.3f} to {high:.3f}"]


def _times(steps: int, width: int) -> tuple[list[float], float]:
    with directory() as place:
        told = os.environ | {"HF_HUB_OFFLINE": "1", "OTEL_RL_EXPORTERS": "jsonl", "OTEL_METRICS_EXPORTER": "none"}
        command = [sys.executable, "-c", _RUN, str(steps), str(width)]
        done = subprocess.run(command, cwd=place, env=told, check=True, capture_output=True, text=True)
        found: tuple[list[float], float] = json.loads(done.stdout.splitlines()[-1])
        return found
