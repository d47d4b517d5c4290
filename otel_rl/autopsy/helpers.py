"""Processes and threads that wait by design, as long as it may take: they owe nothing, and nobody waits for them.

The rule: a child or thread whose stack has no line of the user's code, and that waits, serves a library. The list has
helpers whose stacks are not seen, because py-spy is not installed or may not look. A server that is asked is not one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from otel_rl.autopsy.activity import is_of_the_user, python_frames

if TYPE_CHECKING:
    from otel_rl.autopsy.activity import Activity, ActivityKind
    from otel_rl.autopsy.evidence import ProcessSeen, Thread

_COMMANDS = (
    r"multiprocessing[./](resource_tracker|forkserver|resource_sharer)",
    r"joblib[./]externals[./]loky[./]backend[./]resource_tracker",
    r"torch[./]_inductor[./]compile_worker",
    r"(^|/)(raylet|gcs_server)( |$)",
    r"ray[/.](dashboard|_private[/.](log_monitor|monitor|runtime_env|node))",
    r"wandb-(core|service|xpu)|wandb[./]sdk[./]service|gpu_stats",
    r"nvidia-smi|nvitop|dcgm",
    r"(^|/)(tail|tee|logger|multilog|ts)( |$)",
    r"tensorboard|mlflow (server|ui)|trackio|aim up",
    r"(^|/)(ssh-agent|tmux|screen|dumb-init|tini)( |:|$)",
)
"""Commands of helpers: they track resources, fork on request, compile, serve a cluster or a tracker, and read logs."""
_IS_HELPER = re.compile("|".join(_COMMANDS))
_IDLE: frozenset[ActivityKind] = frozenset(("queue", "lock", "loop", "sleep", "native", "unknown", "thread"))
"""Waits in which a helper spends its life; one that asks a server, writes, or works may be what somebody waits for."""


def is_helper(process: ProcessSeen) -> bool:
    """Return whether a process that does not record is in the list."""
    return process.rank < 0 and _IS_HELPER.search(process.command) is not None


def is_helper_thread(thread: Thread, activity: Activity) -> bool:
    """Return whether a thread waits by design."""
    return not _is_of_user(thread) and _idles(activity)


def may_idle(process: ProcessSeen, activity: Activity) -> bool:
    """Return whether a child waits by design, as far as its stack is seen.

    Without a stack, it waits as likely for work as for anything that it owes.
    """
    if not process.threads:
        return activity.kind != "sleep" and _idles(activity)
    return not _is_of_user(process.threads[0]) and _idles(activity)


def _is_of_user(thread: Thread) -> bool:
    return any(map(is_of_the_user, python_frames(thread.frames)))


def _idles(activity: Activity) -> bool:
    return activity.kind in _IDLE or (activity.kind == "file" and activity.text.startswith("reads"))
