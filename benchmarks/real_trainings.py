"""How often real trainings that are well are called ill, slow, leaking or hung: `python -m benchmarks trainings`.

20 trainings of 300 steps with TRL, Stable-Baselines3 and the demo, with different seeds. Some save to a slow disk, or
share the CPU with another program. It needs TRL and Stable-Baselines3, and takes an hour on two cores.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import otel_rl
from benchmarks.recording import directory
from benchmarks.tables import Cell, Table
from benchmarks.verdicts.measure import busy
from benchmarks.verdicts.statements import ACCUSING_EVENTS
from otel_rl import semconv
from otel_rl.look.insight.conclude import facts_of_recorded
from otel_rl.look.insight.recorded import RecordedRun

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 300
_TRL = str(Path(__file__).parents[1] / "tests" / "frameworks" / "examples")
_SLOW_S = 0.4
"""Seconds that a slow disk takes for a checkpoint."""
_FRAMEWORKS = {
    "TRL": """
sys.path.insert(0, {trl!r})
from otel_rl.frameworks.instrument import instrument
instrument()
import torch, trl_grpo
from transformers import TrainerCallback
class Slow(TrainerCallback):
    def on_save(self, *given, **named):
        time.sleep({slow_s} if {is_slow} else 0)
torch.set_num_threads(1)
trainer = trl_grpo.trainer({steps})
trainer.args.seed, trainer.args.save_steps, trainer.args.eval_steps = {seed}, 25, 75
trainer.args.learning_rate = 1e-4
torch.manual_seed({seed})
trainer.add_callback(Slow())
trainer.train()
""",
    "SB3 PPO": """
import torch
torch.set_num_threads(1)
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from otel_rl.frameworks.stable_baselines3 import OtelRlCallback
class Slow(BaseCallback):
    def _on_step(self):
        return True
    def _on_rollout_end(self):
        time.sleep({slow_s} if {is_slow} and self.num_timesteps // 32 % 25 == 0 else 0)
model = PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, n_epochs=2, seed={seed}, device="cpu")
model.set_logger(configure("own", ["json"]))
model.learn(32 * {steps}, callback=[Slow(), OtelRlCallback(project="trainings", quiet=True)])
""",
    "SB3 A2C": """
import torch
torch.set_num_threads(1)
from stable_baselines3 import A2C
from stable_baselines3.common.logger import configure
from otel_rl.frameworks.stable_baselines3 import OtelRlCallback
model = A2C("MlpPolicy", "CartPole-v1", n_steps=16, seed={seed}, device="cpu")
model.set_logger(configure("own", ["json"]))
model.learn(16 * {steps}, log_interval=1, callback=OtelRlCallback(project="trainings", quiet=True))
""",
    "demo": """
from otel_rl.demo.options import Options
from otel_rl.demo.processes import perform
perform(Options(steps={steps}, seed={seed}, dir=os.environ["OTEL_RL_DIR"], exporters=("jsonl",), prompts=4,
                eval_every=25, checkpoint_every=50, warmup_updates=50), hold=False)
""",
}


class Training(NamedTuple):
    """A training: its framework, its seed, and what is around it."""

    framework: str
    seed: int
    around: str = "alone"


TRAININGS = (
    *(Training("SB3 PPO", seed) for seed in range(4)),
    *(Training("SB3 PPO", 4 + seed, "slow disk") for seed in range(2)),
    Training("SB3 PPO", 6, "shared CPU"),
    *(Training("SB3 A2C", seed) for seed in range(4)),
    Training("SB3 A2C", 4, "shared CPU"),
    *(Training("TRL", seed) for seed in range(3)),
    Training("TRL", 3, "slow disk"),
    Training("TRL", 4, "shared CPU"),
    *(Training("demo", seed) for seed in range(2)),
    Training("demo", 2, "shared CPU"),
)


def measure() -> list[Table]:
    """Return what was said of each training, and how often each detector spoke."""
    title = "Real trainings that are well"
    missing = [name for name in ("trl", "stable_baselines3") if importlib.util.find_spec(name) is None]
    if missing:
        return [Table(title, ["what"], [[f"{', '.join(missing)} is not installed"]], "")]
    counts: Counter[str] = Counter()
    rows: list[list[Cell]] = []
    for training in TRAININGS:
        steps, alarms = _alarms(training)
        counts.update({alarm for alarm, _ in alarms})
        said = "; ".join(f"{alarm}: {text}" for alarm, text in alarms)
        rows.append([f"{training.framework}, seed {training.seed}, {training.around}", steps, said.replace("|", "/")])
        print(rows[-1], file=sys.stderr, flush=True)
    totals: list[list[Cell]] = [[alarm, count] for alarm, count in counts.most_common()]
    note = f"Of {len(TRAININGS)} trainings. Events of the agent, and findings of `why` that are bad or warnings."
    return [
        Table(title, ["training", "steps", "said"], rows, "Nothing is broken in them; what is said can still be true."),
        Table("Trainings in which a detector spoke", ["detector", "trainings"], totals, note),
    ]


def _alarms(training: Training) -> tuple[int, list[tuple[str, str]]]:
    """Train, and return the number of steps and what was said."""
    with directory() as place, busy(2) if training.around == "shared CPU" else nullcontext():
        given = {"seed": training.seed, "steps": STEPS, "slow_s": _SLOW_S, "trl": _TRL}
        script = "import os, sys, time\n" + _FRAMEWORKS[training.framework].format(
            is_slow=training.around == "slow disk", **given
        )
        told = {"HF_HUB_OFFLINE": "1", "OTEL_METRICS_EXPORTER": "none", "OTEL_RL_DIR": str(place / "runs")}
        told |= {"OTEL_RL_EXPORTERS": "jsonl", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=place, env=os.environ | told, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        (path,) = [one.parent for one in (place / "runs").rglob("run.json")]
        recorded = RecordedRun(otel_rl.open_run(path))
        return len(recorded.step_times.steps), [*_said(recorded)]


def _said(recorded: RecordedRun) -> Iterator[tuple[str, str]]:
    for event in recorded.events:
        if event.name in ACCUSING_EVENTS:
            metric, kind = (event.attributes.get(name, "") for name in (semconv.METRIC_NAME, semconv.ANOMALY_KIND))
            yield f"{event.name} {kind}".strip(), f"{metric} at step {event.step}".strip()
    for finding in facts_of_recorded(recorded).findings:
        if finding.severity in {"bad", "warning"}:
            yield f"finding {finding.kind}", finding.sentence
