"""A trainer that fails before its run begins, such as by a missing package, is a run too, with what it printed.

Of the processes below `otel-rl run`, only trainers count: the one that it became, or the ranks of a launcher.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.frameworks.patches import harmless
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.launcher import find_place
from otel_rl.recorder.settings.settings import STARTED_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from otel_rl.recorder.trainer.early_output import EarlyOutput

logger = log_of("otel_rl")
_LAUNCHERS = frozenset(
    (
        *("torchrun", "torch.distributed.run", "torch.distributed.launch", "horovodrun", "ray", "fabric", "lightning"),
        *("accelerate", "accelerate.commands.launch", "accelerate.commands.accelerate_cli"),
        *("deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch"),
        *("trl", "axolotl", "swift", "llamafactory-cli"),
    )
)
"""Programs and modules that start trainers as processes of their own: they fail where one of these fails."""
_CLAIMED, _LAUNCHES = "claimed", "launcher"
_PATIENCE_S = 10.0


def watch(environ: MutableMapping[str, str], failure: Callable[[], BaseException | None]) -> None:
    """Follow what this process prints, and record a run if it fails before it has begun one; if it is a trainer.

    Args:
        environ: Its environment, in which its children see that they are none.
        failure: Returns the error that ends this process, if any.
    """
    if not _is_trainer(environ, sys.orig_argv):
        return
    from otel_rl.recorder.settings.settings import PrintedOutput  # only in trainers
    from otel_rl.recorder.trainer import early_output
    from otel_rl.recorder.trainer.printed import PrintedLines

    early = early_output.begin()
    lines = PrintedLines(early, PrintedOutput(tee=True))
    early.close = lines.close
    lines.begin()
    atexit.register(_record_failure, early, failure)


def _is_trainer(environ: MutableMapping[str, str], argv: Sequence[str]) -> bool:
    """Return whether this process trains, and note it for its children."""
    started, _, by = environ.get(STARTED_VARIABLE, "").rpartition(" ")
    if not by or by == _CLAIMED:
        return False
    is_first = by == str(os.getpid())
    if _program(argv) in _LAUNCHERS:
        if is_first:
            environ[STARTED_VARIABLE] = f"{_LAUNCHES} {by}"
        return False
    is_launched = started == _LAUNCHES and by == str(os.getppid())
    if is_first or is_launched or find_place(environ).rank is not None:
        environ[STARTED_VARIABLE] = _CLAIMED
        return True
    return False


def _program(argv: Sequence[str]) -> str:
    """Return the name of the script or the module that Python runs; empty if it is neither."""
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word in ("-W", "-X"):
            next(words, "")
        elif word == "-c":
            return ""
        elif not word.startswith("-"):
            return Path(word).name
    return ""


def _record_failure(early: EarlyOutput, failure: Callable[[], BaseException | None]) -> None:
    """Record that the trainer has failed, unless it is a forked child, has begun a run, or was interrupted."""
    error = failure() if early.is_waiting and not hasattr(sys, "ps1") else None
    if error is None or isinstance(error, KeyboardInterrupt):
        return
    with harmless("a start that failed"):
        import otel_rl
        from otel_rl.recorder.trainer.current import end_by_error

        try:
            otel_rl.init()
        except otel_rl.SettingsError as wrong:  # its traceback would hide that of the trainer
            logger.warning("the trainer failed before its run began, and is not recorded: %s", wrong)
        else:
            end_by_error(error, _PATIENCE_S)
