"""Hooks into frameworks that are on no package index. The tests write modules of the same shape.

ROLL: `roll/utils/tracking.py` at e25f5fa; NeMo-RL: `nemo_rl/utils/logger.py` at 0275e75, its `timer.py` and
`grpo_train` at 7ea279a; OpenRLHF: `openrlhf/trainer/ppo_trainer.py` of 0.11.2, which needs CUDA to be imported.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.recorded import Recorded, launched, only, told_by
from tests.frameworks.results import compared

pytestmark = pytest.mark.timeout(120)
_ROLL = """
tracker_registry = {}

class BaseTracker:
    def log(self, values, step, **kwargs): pass
    def finish(self): pass

class StdoutTracker(BaseTracker):
    def __init__(self, config, **kwargs): pass
    def log(self, values, step=None, **kwargs): print("TOLD", step, sorted(values))

def create_tracker(tracker_name, config, **kwargs):
    if not tracker_name:
        return BaseTracker()
    return tracker_registry[tracker_name](config, **kwargs)

tracker_registry["stdout"] = StdoutTracker
"""
_NEMO = """
class TensorboardLogger:
    def log_metrics(self, metrics, step, prefix="", step_metric=None, step_finished=False):
        print("TOLD", step, prefix, sorted(metrics))
    def log_hyperparams(self, params): pass
    def log_histogram(self, histogram, step, name): pass
    def log_plot(self, figure, step, name): pass

class Logger:
    def __init__(self, cfg):
        self.loggers = [TensorboardLogger()] if cfg["tensorboard_enabled"] else []
    def log_metrics(self, metrics, step, prefix="", step_metric=None, step_finished=False):
        for logger in self.loggers:
            logger.log_metrics(metrics, step, prefix, step_metric, step_finished)
    def log_hyperparams(self, params):
        for logger in self.loggers:
            logger.log_hyperparams(params)
    def finish(self):
        for logger in self.loggers:
            finish = getattr(logger, "finish", None)
            if callable(finish):
                finish()
"""
_CODETIMING = """
class Timer:
    def __init__(self, name): self.name = name
    def __enter__(self): return self
    def __exit__(self, *error): pass
"""
_ROLL_PIPELINE = """
class BasePipeline:
    def do_checkpoint(self, global_step): pass
"""
_ROLL_TRAINER = """
from codetiming import Timer
from roll.pipeline.base_pipeline import BasePipeline
from roll.utils.tracking import create_tracker

class Pipeline(BasePipeline):
    def run(self):
        tracker = create_tracker(NAME, {"lr": 0.5}, project="p", name="agentic")
        for global_step in range(3):
            with Timer(name="pipeline_step_total"):
                with Timer(name="step_generate"), Timer(name=None):
                    pass
                with Timer(name="cal_ref_log_probs"):
                    pass
            self.do_checkpoint(global_step)
            tracker.log(values={"critic/score/mean": global_step / 7, "actor/clipfrac@sum": 2.0}, step=global_step)
        tracker.finish()

with Timer(name="elsewhere"):
    Pipeline().run()
create_tracker("", {}).log({}, 0)
"""
_NEMO_TIMER = """
from contextlib import contextmanager

class Timer:
    def __init__(self, context=None):
        self.labels = []
    def start(self, label, should_log=True): pass
    def stop(self, label, should_log=True):
        self.labels.append(label)
    @contextmanager
    def time(self, label, should_log=True):
        self.start(label, should_log)
        try:
            yield
        finally:
            self.stop(label, should_log)
"""
_NEMO_TRAINER = """
from nemo_rl.utils.logger import Logger
from nemo_rl.utils.timer import Timer

def grpo_train(logger):
    timer = Timer(context={"worker": "driver"})
    total_steps = 0
    while total_steps < 3:
        with timer.time("total_step_time"):
            with timer.time("prepare_for_generation/total"):
                pass
            with timer.time("generation"):
                pass
            with timer.time("policy_training"):
                pass
            with timer.time("checkpointing"):
                pass
        logger.log_metrics({"loss": total_steps / 7}, total_steps + 1, prefix="train")
        logger.log_metrics({"total": 0.5}, total_steps + 1, prefix="timing/train", step_finished=True)
        total_steps += 1
    print(timer.labels.count("generation"))

logger = Logger({"tensorboard_enabled": True, "wandb": {"project": "p", "name": "grpo"}})
logger.log_hyperparams({"lr": 0.5})
grpo_train(logger)
logger.finish()
"""
_OPENRLHF_LOGGER = """
class TensorboardLogger:
    def __init__(self, args): pass
    def log_train(self, global_step, logs_dict): pass
    def log_eval(self, global_step, logs_dict): pass
    def close(self): pass

class WandbLogger(TensorboardLogger): pass
"""
_OPENRLHF = """
from openrlhf.utils.logging_utils import TensorboardLogger

class SamplesGenerator:
    def generate_samples(self, **options):
        return ["text"], None, 1, False

class RemoteExperienceMaker:
    def make_experience_batch(self, samples):
        return samples

class BasePPOTrainer:
    def __init__(self, args):
        self.samples_generator = SamplesGenerator()
        self.experience_maker = RemoteExperienceMaker()
        self.tensorboard_logger = TensorboardLogger(args)
    def train_step(self, samples, global_step):
        self.experience_maker.make_experience_batch(samples)
        status = self.ppo_train(global_step)
        self.broadcast_to_vllm()
        return status, global_step + 1
    def ppo_train(self, global_steps):
        return {"policy_loss": global_steps / 7}
    def broadcast_to_vllm(self): pass
    def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None):
        self.tensorboard_logger.log_train(global_step, logs_dict)
    def evaluate(self, global_step, **options):
        self.tensorboard_logger.log_eval(global_step, {"pass1": 0.25})

class PPOTrainer(BasePPOTrainer):
    def fit(self, global_step=0):
        for _ in range(3):
            samples, *_ = self.samples_generator.generate_samples(temperature=1.0)
            status, global_step = self.train_step(samples, global_step)
            self.save_logs_and_checkpoints(global_step, status, {})
            if global_step == 3:
                self.evaluate(global_step)
        self.tensorboard_logger.close()
"""
_OPENRLHF_TRAINER = """
from types import SimpleNamespace
from openrlhf.trainer.ppo_trainer import PPOTrainer
named = SimpleNamespace(key=None, project="p", run_name="ppo")
PPOTrainer(SimpleNamespace(logger=SimpleNamespace(wandb=named), seed=7)).fit()
"""


def write(directory: Path, modules: dict[str, str]) -> None:
    """Write the modules of a framework at their places."""
    for place, module in modules.items():
        path = directory / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(module)


def train(directory: Path, modules: dict[str, str], trainer: str) -> tuple[str, Recorded]:
    """Run a trainer under `otel-rl run`, with modules of the framework at their places; return output and run."""
    write(directory, modules)
    output = launched(directory, "-c", trainer, OTEL_RL_RUN_ID="run", PYTHONPATH=str(directory))
    return output, only(directory / "runs" / "p")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stdout", "otel_rl"])
def test_roll(name: str, tmp_path: Path) -> None:
    """`track_with: otel_rl`, or any other tracker, which gets what it got before; timers of the pipeline are phases.

    Phases have the timers' names without prefixes, and timers of other code are not recorded.
    """
    pipeline = "roll/pipeline/base_pipeline.py"
    modules = {"roll/utils/tracking.py": _ROLL, "codetiming.py": _CODETIMING, pipeline: _ROLL_PIPELINE}
    output, recorded = train(tmp_path, modules, _ROLL_TRAINER.replace("NAME", repr(name)))
    told = "['actor/clipfrac@sum', 'critic/score/mean']"
    wrote = {step: {"critic/score/mean": step / 7, "actor/clipfrac": 2.0} for step in range(3)}

    assert compared(wrote, recorded.rows).different == []
    assert recorded.params == {"lr": 0.5}
    assert recorded.phases == {step: ["generate", "ref_log_probs", "do_checkpoint"] for step in range(3)}
    assert output.splitlines() == ([f"TOLD {step} {told}" for step in range(3)] if name == "stdout" else [])


def test_nemo_rl(tmp_path: Path) -> None:
    """A backend more, the others get what they got before; what its timer times are steps and phases."""
    modules = {"nemo_rl/utils/logger.py": _NEMO, "nemo_rl/utils/timer.py": _NEMO_TIMER}
    output, recorded = train(tmp_path, modules, _NEMO_TRAINER)
    timed = ["prepare_for_generation", "generation", "policy_training", "checkpointing"]
    wrote = {step: {"train/loss": (step - 1) / 7, "timing/train/total": 0.5} for step in (1, 2, 3)}

    assert list(recorded.rows) == [1, 2, 3]
    assert compared(wrote, recorded.rows).different == []
    assert recorded.params == {"lr": 0.5}
    assert recorded.phases == dict.fromkeys((1, 2, 3), timed)
    assert output.count("TOLD") == 6
    assert output.split()[-1] == "3"


def test_openrlhf_without_a_logger(tmp_path: Path) -> None:
    """Nothing is recorded, and one line says which arguments are missing."""
    silent = _OPENRLHF.replace("TensorboardLogger(args)", "SimpleNamespace(**dict.fromkeys(_CALLS, lambda *_: None))")
    calls = "_CALLS = ('log_train', 'log_eval', 'close')"
    module = f"from types import SimpleNamespace\n{calls}\n{silent.split(chr(10), 2)[2]}"
    write(tmp_path, {"openrlhf/trainer/ppo_trainer.py": module})
    errors = told_by(tmp_path, "-c", _OPENRLHF_TRAINER, PYTHONPATH=str(tmp_path))

    assert errors.count("--logger.wandb.key or --logger.tensorboard_dir") == 1
    assert not (tmp_path / "runs").exists()


def test_openrlhf(tmp_path: Path) -> None:
    """Methods of its trainer are phases; evaluation is in the step that it follows."""
    modules = {"openrlhf/utils/logging_utils.py": _OPENRLHF_LOGGER, "openrlhf/trainer/ppo_trainer.py": _OPENRLHF}
    _, recorded = train(tmp_path, modules, _OPENRLHF_TRAINER)
    each = ["generate_samples", "make_experience_batch", "ppo_train", "broadcast_to_vllm", "save_logs_and_checkpoints"]

    assert recorded.phases == {1: each, 2: each, 3: [*each, "evaluate"]}
    assert {step: row["train/policy_loss"] for step, row in recorded.rows.items()} == {1: 0.0, 2: 1 / 7, 3: 2 / 7}
