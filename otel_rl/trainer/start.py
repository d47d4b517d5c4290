"""Begins a run."""

from __future__ import annotations

import atexit
import inspect
import os
import socket
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from otel_rl.errors import SettingsError
from otel_rl.errors.texts import shown
from otel_rl.journal import locks
from otel_rl.setup import settings
from otel_rl.setup.otel_environment import sdk_is_disabled
from otel_rl.trainer.run import Run, current, make_current

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Begin = TypeVar("Begin", bound="Callable[..., Any]")


def _tells_settings(begin: Begin) -> Begin:
    """Let wrong names of settings be a `SettingsError` too, which knows the right ones."""
    known = list(inspect.signature(begin).parameters)

    @wraps(begin)
    def call(*given: object, **named: object) -> object:
        if given:
            raise SettingsError(f"init({shown(given[0])}): give settings by name, such as project=…")
        for name in named:
            if name not in known:
                raise SettingsError(f"{name}= is not a setting of otel-rl{settings.meant(name, known)}")
        return begin(**named)

    return cast("Begin", call)


@_tells_settings
def init(
    *,
    project: str | None = None,
    name: str | None = None,
    id: str | None = None,  # noqa: A002 - what W&B and MLflow users call it
    config: object = None,
    exporters: Sequence[object] | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - likewise
    local_dir: str | os.PathLike[str] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_world_size: int | None = None,
    role: str | None = None,
    dialect: str | None = None,
    reduce: Mapping[str, str | Sequence[str]] | None = None,
    quantiles: Sequence[float] | None = None,
    metrics: str | Sequence[str] | None = None,
    log_every: int | None = None,
    log_first: bool | None = None,
    log_window: str | None = None,
    name_limit: int | None = None,
    content: bool | None = None,
    model_parameters: float | None = None,
    flops_per_token: float | None = None,
    peak_flops: float | None = None,
    trace_ratio: float | None = None,
    trace_budget: int | None = None,
    head: str | None = None,
    hardware: bool | None = None,
    collection_interval: float | None = None,
    flush_interval: float | None = None,
    gpu_io: bool | None = None,
    engines: Sequence[str] | None = None,
    strict: bool | None = None,
    device_clock: bool | None = None,
    memory_peaks: str | None = None,
    memory_history: int | None = None,
    agent: str | None = None,
    set_global: bool | None = None,
    quiet: bool | None = None,
    row_deadline: float | None = None,
    idle_timeout: float | None = None,
    journal_limit: int | None = None,
) -> Run:
    """Begin to record this process as one rank of a run; `otel_rl.setup.settings.Settings` describes each keyword.

    `config` is what `Run.params` takes. A second call returns the run that is being recorded, if it
    asks for the same or for nothing.

    Raises:
        SettingsError: A setting is wrong, a package missing, another run is being recorded; the message names
            the fix. With `strict`, also if the machine does not allow what is asked for, such as a directory that
            cannot be written; without it, one warning says what is done instead. Nothing raises after `init`.
    """
    given = {key: value for key, value in locals().items() if value is not None}
    present = current()
    if present is not None:
        if not given or _same(given, present.asked_for):
            return present
        raise SettingsError(f"run {present.id} is being recorded in this process; finish() it first")
    chosen = settings.load({key: value for key, value in given.items() if key != "config"})
    spans = not sdk_is_disabled(os.environ)
    from otel_rl.trainer.opening import Unrecorded, open_session  # what only the start of a run needs

    session, held = None, locks.held()
    try:
        session = open_session(chosen)
        run = Run(session, spans=spans, provider_is_global=chosen.set_global, asked_for=given)
        make_current(run)
    except BaseException:
        if current() is None:
            if session is not None:
                session.give_up()
            locks.release_since(held)
        raise
    atexit.register(run._finish_at_exit)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:  # such a process ends without atexit
        from multiprocessing import util

        util.Finalize(None, run._finish_child, exitpriority=100)
    if config is not None:
        run.params(config)
    if chosen.rank == 0 and not chosen.quiet and not isinstance(session, Unrecorded):
        local = session.directory.local
        shown = "" if local.is_relative_to(run.dir) else f"; its journals are in {local} on {socket.gethostname()}"
        shown += f"; metrics at {run.prometheus}" if run.prometheus else ""
        print(f"otel-rl: recording into {run.dir}{shown}", file=sys.stderr)  # noqa: T201
    return run


def _same(given: dict[str, object], before: dict[str, object]) -> bool:
    try:
        return bool(given == before)
    except Exception:  # arrays in a config do not compare
        return False
