"""Trinity-RFT: what its monitors get, and the trainer's steps and phases.

    from otel_rl.frameworks.trinity import MONITOR      # and all other names of trinity.utils.monitor

They are Trinity's own objects, of the installed version, and recording is on. Each role is a run, `{name}_{role}`, as
with Trinity's own monitors, because explorer and trainer are separate Ray actors.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.charted import numbers
from otel_rl.frameworks.patches import Patches, harmless
from otel_rl.frameworks.recording import Recordings
from otel_rl.frameworks.rollouts import ScoredRollout, mean_of, record, run_with_texts
from otel_rl.frameworks.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PHASE = "_otel_rl_phase"
_ARGUMENTS = ("project", "group", "name", "role", "config")
_TIMERS = Timers("step", lambda _: None)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from otel_rl.frameworks.instrument import instrument

    instrument("trinity")
    for module in ("trinity.utils.monitor", "trinity.utils.metrics"):  # the second one is of 0.6
        if find_spec(module) is not None and hasattr(loaded := import_module(module), name):
            return getattr(loaded, name)
    raise AttributeError(f"Trinity-RFT has no {name!r} in trinity.utils.monitor or trinity.utils.metrics")


def patch_monitors(module: Any, patches: Patches) -> None:
    """Register `monitor_type: otel_rl`, and record what any monitor of the registry gets."""
    recordings, seen = Recordings(), set[type]()

    def begin(monitor: Any, given: dict[str, Any]) -> None:
        project, name = str(given["project"]), f"{given['name']}_{given['role']}"
        recordings.begin(monitor, given.get("config"), project=project, name=name, dialect="trinity")

    def log(monitor: Any, given: dict[str, Any]) -> None:
        recordings.log(monitor, given["data"], given["step"])

    def table(monitor: Any, given: dict[str, Any]) -> None:
        recordings.table(monitor, given["table_name"], given["experiences_table"], given["step"])

    def get(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        monitor = function(*args, **kwargs)
        with harmless("Monitor"):
            if isinstance(monitor, type) and monitor not in seen:
                seen.add(monitor)
                patches.observe(monitor, "__init__", _ARGUMENTS, begin, what="Monitor")
                patches.observe(monitor, "log", ("data", "step", "commit"), log, what="Monitor.log")
                patches.observe(monitor, "log_table", ("table_name", "experiences_table", "step"), table)
                patches.observe(monitor, "close", (), lambda own, _: recordings.finish(own), what="Monitor", first=True)
        return monitor

    if "otel_rl" not in module.MONITOR.modules:
        quiet = dict.fromkeys(("__init__", "log", "log_table", "close"), lambda *_, **__: None)
        module.MONITOR.register_module("otel_rl", type("OtelRlMonitor", (module.Monitor,), quiet))
    patches.wrap(module.MONITOR, "get", get)


def patch_timer(module: Any, patches: Patches) -> None:
    """Record the sections of `Timer` as phases."""
    _TIMERS.hook_timer(patches, module, "Timer", lambda timer: str(timer.key).rpartition("time/")[2])


def patch_trainer(module: Any, patches: Patches) -> None:
    """Begin a step of the trainer where it begins to sample its experiences; it has them where it trains on them."""

    def begin(trainer: Any, given: dict[str, Any]) -> None:
        _TIMERS.begin_step(trainer.train_step_num + 1)
        trainer.__dict__[_PHASE] = _TIMERS.begin("sample_data")

    def end(trainer: Any, given: dict[str, Any]) -> None:
        _TIMERS.end("", trainer.__dict__.pop(_PHASE, None))
        if (run := run_with_texts()) is not None:
            # Pairs of DPO have no mask.
            rollouts = [_rollout(exp) for exp in given["exps"] if exp.action_mask is not None]
            record(run, trainer.train_step_num + 1, rollouts)

    patches.observe(module, "Trainer._sample_data", (), begin, first=True)
    patches.observe(module, "Trainer.train_step", ("exps",), end, first=True)


def _rollout(experience: Any) -> ScoredRollout:
    tokens, mask = experience.tokens[experience.prompt_length :].tolist(), experience.action_mask.tolist()
    advantages = experience.advantages
    prompt, completion = experience.prompt_text or "", experience.response_text or ""
    if experience.messages:
        prompt, completion = _parted(experience.messages, mask)
    return ScoredRollout(
        prompt=prompt,
        completion=completion,
        group=experience.eid.tid,
        tokens=tokens,
        mask=mask,
        logprobs=None if experience.logprobs is None else experience.logprobs.tolist(),
        reward=experience.reward,
        advantage=None if advantages is None else mean_of(advantages.tolist(), mask),
        components=numbers(experience.metrics),
    )


def _parted(messages: Sequence[Mapping[str, object]], mask: Sequence[object]) -> tuple[object, object]:
    """Return the messages before the policy began, and those since: each run of the mask is a message of it."""
    runs = sum(own for own, _ in groupby(mask, bool))
    written = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    first = written[-runs] if 0 < runs <= len(written) else len(messages)
    return messages[:first], messages[first:]
