"""Begin a run: `init`."""

from __future__ import annotations

import os
import shlex
import socket
from typing import TYPE_CHECKING

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of, one_line, print_line
from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.files import locks
from otel_rl.recorder.files.processes import hold_standard_descriptors
from otel_rl.recorder.settings.loading import load, unknown_setting
from otel_rl.recorder.settings.otel_environment import sdk_is_disabled
from otel_rl.recorder.settings.settings import Settings
from otel_rl.recorder.trainer import early_output
from otel_rl.recorder.trainer.current import add, current, end_with_process, forget, forget_ended, is_open, turn
from otel_rl.recorder.trainer.forked import is_inherited
from otel_rl.recorder.trainer.run import Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Never

    from otel_rl.recorder.settings.settings import Flops, Hardware, PrintedOutput, Rows, Traces


_FIX = "finish() it first, or record runs that go on at once in a process each"
_AGAIN = "finish() it first to begin another run, or another attempt of it"
_warnings = Occasional(log_of("otel_rl"))


def init(
    *_extra: Never,
    project: str | None = None,
    name: str | None = None,
    id: str | None = None,  # noqa: A002 - what W&B and MLflow users call it
    config: object = None,
    exporters: Sequence[object] | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - likewise
    rank: int | None = None,
    world_size: int | None = None,
    role: str | None = None,
    head: str | None = None,
    reduce: Mapping[str, str | Sequence[str]] | None = None,
    content: bool | None = None,
    rows: Mapping[str, object] | Rows | None = None,
    traces: Mapping[str, object] | Traces | None = None,
    flops: Mapping[str, object] | Flops | None = None,
    hardware: Mapping[str, object] | Hardware | bool | None = None,
    output: Mapping[str, object] | PrintedOutput | bool | None = None,
    **others: object,
) -> Run:
    """Begin to record this process as one rank of a run.

    Each keyword can also be given in the environment (`OTEL_RL_RANK`, `OTEL_RL_ROWS_EVERY`) and in a settings file; a
    keyword wins. A group (`rows`, `traces`, `flops`, `hardware`, `output`) is a mapping of the settings that differ
    from those places, or a struct of `otel_rl.recorder.settings.settings`, which sets all of its fields. A second call
    returns the run that is being recorded, if it gives the same keywords or none.

    Args:
        project: Name by which trackers group runs; by default the script's.
        name: Display name of the run; by default its id.
        id: Identity of the run; by default the launcher's, or a random one. A second start with the same id is another
            attempt of the run.
        config: Hyper-parameters, as for `Run.params`.
        exporters: Names such as "wandb", mappings such as `{"wandb": {"mode": "offline"}}`, or classes and functions
            that build an exporter; by default `["jsonl"]`.
        dir: Directory of the run directories; by default `runs`.
        rank: Number of this process among the trainer processes of the run, from 0; by default the launcher's.
        world_size: Number of trainer processes of the run; by default the launcher's.
        role: Role of this process, if it is not a trainer rank: "driver", "rollout", "reward".
        head: `host:port` of the agent that makes the rows of all machines; by default there is one machine.
        reduce: Reducers over ranks by name pattern, such as `{"tokens": "sum", "reward": ["mean", "p95"]}`.
        content: If true, texts such as prompts and completions may leave the process.
        rows: Rows that trackers receive: `every` (steps), `first`, `window`, `quantiles` (0 to 1), `metrics`,
            `deadline` (seconds).
        traces: Trace sampling: `ratio` (of steps, 0 to 1).
        flops: For FLOP/s and MFU: `parameters` of the model, FLOPs `per_token`, `peak` FLOP/s of a device.
        hardware: Hardware poller: `interval` (seconds), `pcie`, `engines` (URLs); or `False`.
        output: What the process prints: `True` records it from a terminal or a pipe too, `False` not at all.
        others: Any other setting of the reference by its name, such as `strict=True` or `quiet=True`. Operators set
            these in the environment.

    Raises:
        SettingsError: A setting is invalid, a package is missing, or another run is being recorded; the message names
            the fix. With `strict`, also if the machine does not allow what is asked for, such as a directory that
            cannot be written. Nothing raises after `init`.
    """
    named = {key: value for key, value in locals().items() if key not in ("_extra", "others")} | others
    if _extra:
        raise SettingsError(f"init({shown(_extra[0])}): give settings by name, such as project=…")
    known = ("config", *Settings.__struct_fields__)
    if unknown := next((keyword for keyword in others if keyword not in known), None):
        raise unknown_setting(unknown, others[unknown], known)
    given = {key: value for key, value in named.items() if value is not None}
    with turn():
        present = current()
        if present is not None:
            if not given or _same(given, present._asked_for):
                if given and present._steps.last is not None:
                    _warnings.warn(f"init() again: run {present.id} has steps, and goes on; {_AGAIN}")
                return present
            if is_inherited(present):  # this forked child begins a run of its own
                forget(present)
            elif not present._steps.training_ended:
                raise SettingsError(f"run {present.id} is being recorded in this process; {_FIX}")
            else:
                present.finish()
        return _begin(given, alone=True)


def init_beside(**given: object) -> Run:
    """Begin another run in this process, which stays the recorder of the present one; the keywords are those of `init`.

    Raises:
        SettingsError: As `init`.
    """
    with turn():
        return _begin(given, alone=False)


def _begin(given: dict[str, object], *, alone: bool) -> Run:
    """Begin a run, and count it among those of this process; it is an error if an `alone` one would be the second."""
    hold_standard_descriptors()
    chosen = load({key: value for key, value in given.items() if key != "config"})
    spans = not sdk_is_disabled(os.environ)
    from otel_rl.recorder.trainer.opening import Unrecorded, open_session  # only the start of a run needs it

    session, held = None, locks.held()
    run: Run | None = None
    try:
        session = open_session(chosen)
        if alone and (other := current()) is not None:  # by a signal handler, or the module of an exporter
            raise SettingsError(f"run {other.id} began while init() ran, and is being recorded; call init() once")
        run = Run(session, spans=spans, provider_is_global=chosen.set_global, asked_for=given)
        run._end.when_over = forget_ended
        run._end.printed.begin(early_output.taken())
        add(run)
    except BaseException:
        # An interrupt behind `add` leaves a run that works, which `init` then returns.
        if not is_open(run):
            if run is not None:
                run._end.printed.close()
            if session is not None:
                session.give_up()
            # The traceback of the interrupt keeps the half-made session alive, and with it the locks
            # (faults/test_interrupts.py).
            locks.release_since(held)
        raise
    end_with_process(os.getpid())
    if given.get("config") is not None:
        run.params(given["config"])
    if session.settings.rank == 0 and not chosen.quiet and not isinstance(session, Unrecorded):
        local = session.directory.local
        more = "" if local.is_relative_to(run.dir) else f"; its journals are in {local} on {socket.gethostname()}"
        more += f"; in the browser: otel-rl ui {shlex.quote(session.settings.dir)}"
        more += f"; metrics at {run.prometheus}" if run.prometheus else ""
        print_line(one_line(f"otel-rl: recording into {run.dir}{more}"))
    return run


def _same(given: dict[str, object], before: dict[str, object]) -> bool:
    try:
        return bool(given == before)
    except Exception:  # arrays in a config do not compare
        return False
