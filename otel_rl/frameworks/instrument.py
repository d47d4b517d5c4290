"""Record frameworks and trackers without code changes in the trainer.

`otel-rl run -- python train.py …` and `opentelemetry-instrument python train.py …` call `instrument` before the trainer
starts. In code it is `otel_rl.frameworks.instrument.instrument("trl")`. A framework is hooked into when the trainer
imports it; otel-rl never imports it itself.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib import metadata
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from otel_rl.frameworks.failed_start import watch
from otel_rl.frameworks.patches import Patches, harmless
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.launcher import find_place
from otel_rl.recorder.settings.settings import CAPTURE_VARIABLE, INSTRUMENT_VARIABLE
from otel_rl.recorder.trainer.current import end_by_status
from otel_rl.semconv.frameworks import Framework, hooked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = log_of("otel_rl")

_NOTHING = "otel-rl recorded nothing, though an optimizer of PyTorch made steps: %s"
_active: dict[str, Patches] = {}
_status: list[object] = []
"""What `sys.exit` was called with; at the exit of the process, Python does not expose its status."""
_trained: set[bool] = set()
"""Not empty if an optimizer of PyTorch has made a step."""


def instrument(*names: str) -> None:
    """Instrument frameworks. A framework that is instrumented already stays as it is.

    Args:
        names: Names of frameworks, all of which are "all", the default, or of libraries.

    Raises:
        ValueError: A name is unknown.
    """
    known = hooked("framework")
    chosen = [each for name in names or ("all",) for each in (known if name == "all" else (name,))]
    _hook_all(known | hooked("library"), chosen)


def capture(*names: str) -> None:
    """Record what the trainer logs to trackers itself.

    Args:
        names: Names of trackers.

    Raises:
        ValueError: A name is unknown.
    """
    _hook_all(hooked("tracker"), names)


def from_environment(environ: Mapping[str, str]) -> None:
    """Instrument and capture what the variables name, separated by commas; "all" means all frameworks.

    An unknown name is logged, because nobody can catch an error at the start of a process. So is, at its end, that
    nothing was recorded.
    """
    from wrapt import register_post_import_hook  # where something is instrumented

    register_post_import_hook(_watch_optimizers, "torch.optim.optimizer")
    Patches().observe(sys, "exit", ("status",), lambda _, given: _status.append(given.get("status")), first=True)
    atexit.register(_warn_if_nothing)
    _record_exits()
    watch(os.environ, lambda: None if _trained else _failure())
    for variable, call in ((INSTRUMENT_VARIABLE, instrument), (CAPTURE_VARIABLE, capture)):
        names = [name.strip() for name in environ.get(variable, "").split(",") if name.strip()]
        if names:
            try:
                call(*names)
            except ValueError as error:
                logger.warning("%s: %s", variable, error)


def _record_exits() -> None:
    """End the run that is recorded with the status of `os._exit`, after which nothing else runs."""

    def end(function: Any, _instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            with harmless("os._exit"):
                end_by_status(*args, **kwargs)
        finally:
            function(*args, **kwargs)

    Patches().wrap(os, "_exit", end)


def _hook_all(known: Mapping[str, Framework], names: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"unknown name {name!r}: must be one of {', '.join(known)}")
        if name not in _active:
            _active[name] = hook(known[name])


def _watch_optimizers(module: Any) -> None:
    module.register_optimizer_step_pre_hook(lambda *_: _trained.add(True))


def _failure() -> BaseException | None:
    """Return the error that ends the script, at its exit; `None` if it has not failed."""
    # Python sets `last_value` when an exception ends the script, before it calls the functions of `atexit`.
    return getattr(sys, "last_value", None) or (SystemExit(_status[-1]) if _status and _status[-1] else None)


def _warn_if_nothing() -> None:
    """Log one line if a training with PyTorch has ended without an exception and without a run, once for all ranks."""
    if not _trained or "otel_rl.recorder.trainer.opening" in sys.modules:
        return
    processes = sys.modules.get("multiprocessing.process")
    is_worker = processes is not None and processes.parent_process() is not None
    is_later_rank = find_place(os.environ).rank or os.environ.get("LOCAL_RANK", "0") != "0"
    if not (is_worker or is_later_rank or _failure()):
        logger.warning(_NOTHING, _what_was_seen())


def _what_was_seen() -> str:
    """Return what was looked for, what of it was imported, and what can be done."""
    trackers = hooked("tracker")
    known = hooked("framework") | trackers
    imported = [name for name, framework in known.items() if not sys.modules.keys().isdisjoint(framework.hooks)]
    captured = [name for name in trackers if name in _active]
    others = ",".join(name for name in imported if name in trackers and name not in _active)
    looked_for = ", ".join(name for name in _active if name not in captured)
    seen = [f"no trainer of {looked_for} ran"] if looked_for else []
    seen += [f"imported: {', '.join(imported)}"] if imported else []
    seen += [f"no number reached {', '.join(captured)}"] if captured else []
    ways = [] if "torch" in _active else ["--instrument torch for a loop of your own"]
    ways += [f"--capture {others} for what it logs there"] if others else []
    return "; ".join([*seen, f"add {', or '.join(ways)}" if ways else "call otel_rl.init in the script"])


def uninstrument(*names: str) -> None:
    """Remove the hooks of these frameworks and trackers, of all by default."""
    for name in names or tuple(_active):
        if (patches := _active.pop(name, None)) is not None:
            patches.undo()


def active() -> tuple[str, ...]:
    """Return the names of the frameworks and trackers that are hooked into."""
    return tuple(_active)


def hook(framework: Framework) -> Patches:
    """Hook into a framework when it is imported, or immediately if it is imported already."""
    import wrapt  # where something is instrumented

    patches = Patches()

    def hook_into(module: Any) -> None:
        with harmless(f"instrumenting {module.__name__}"):
            # An import hook of wrapt cannot be removed: after `undo`, it must do nothing.
            if patches.active:
                _check_version(framework)
                resolve_name(framework.hooks[module.__name__])(module, patches)

    for module in framework.hooks:
        wrapt.register_post_import_hook(hook_into, module)
    return patches


def _check_version(framework: Framework) -> None:
    """Log one warning for a version that was not tested; it is supported on a best-effort basis."""
    from packaging.specifiers import SpecifierSet

    if not framework.tested:
        return
    try:
        version = metadata.version(framework.distribution)
    except metadata.PackageNotFoundError:
        return
    if not SpecifierSet(framework.tested).contains(version, prereleases=True) and framework not in _warned:
        _warned.append(framework)
        logger.warning(
            "%s %s was not tested with this version of otel-rl (%s was); support is best effort",
            framework.distribution,
            version,
            framework.tested,
        )


_warned: list[Framework] = []
