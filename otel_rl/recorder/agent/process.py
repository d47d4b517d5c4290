"""The agent as a process: its lock, its signals, its log and its exit code."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import signal
import sys
import threading
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.agent.agent import Agent, GoneError, RemovedError
from otel_rl.recorder.agent.build import AgentTask
from otel_rl.recorder.agent.repair.refill import catch_up
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory import parts, secret_options
from otel_rl.recorder.directory.agent_start import DIRECTORY, MACHINE, AgentStatus
from otel_rl.recorder.directory.births import Birth
from otel_rl.recorder.directory.directory import FULL, RunDirectory, read_manifest, unwritable
from otel_rl.recorder.errors import SettingsError, stop_signals
from otel_rl.recorder.errors.sinks import OneLine, log_of
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.files.modes import own_process, share_with
from otel_rl.recorder.files.own_files import ForeignError
from otel_rl.recorder.journal.claim import remove_abandoned
from otel_rl.recorder.secrets import redacted
from otel_rl.recorder.settings import loading
from otel_rl.recorder.settings.otel_environment import log_level, only_valid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_rl.export import Exporter
    from otel_rl.recorder.directory.directory import Manifest

logger = log_of(__name__)
_MOST_DESCRIPTORS = 65_536
_UNWRITABLE = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM)
End = Literal["done", "incomplete", "cannot start", "crashed", "not needed"]
"""How an agent ended: the supervisor has an exit code for each."""
REGISTERED: Mapping[str, Callable[..., Exporter]] = MappingProxyType({})


class StartError(RuntimeError):
    """The agent cannot start."""


def _cause(error: Exception) -> str:
    """Return why the agent cannot start: the directory, the machine, or the settings."""
    if isinstance(error, OSError):
        return DIRECTORY if error.errno in _UNWRITABLE else MACHINE
    return "" if isinstance(error, (SettingsError, ImportError)) else MACHINE


def log_to_stderr() -> None:
    """Log to standard error; silence the SDK's exporters, since otel-rl's report their failures."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=log_level(os.environ), handlers=[handler])
    logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)


def _let_warn() -> None:
    """Let warnings be warnings here: with a trainer's `PYTHONWARNINGS=error`, trackers would fail for good."""
    warnings.filters[:] = [rule for rule in warnings.filters if rule[0] != "error"]  # type: ignore[index]
    os.environ.pop("PYTHONWARNINGS", None)  # for the processes that trackers start


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files as far as allowed: exporters and their connections need many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@only_valid(os.environ)
def run_agent(
    run: Path | RunDirectory,
    *,
    once: bool = False,
    patience: float = 1.0,
    of_archive: bool = False,
    exporters: Mapping[str, Callable[..., Exporter]] = REGISTERED,
    manifest: Manifest | None = None,
) -> bool:
    """Run the agent of a run directory until it is done; return whether everything was delivered and nothing was lost.

    Args:
        run: The run directory, by default with the part of this machine.
        once: Deliver what exists and end.
        patience: Seconds to wait for the end of another agent.
        of_archive: If true, the part was made from the archive of another machine.
        exporters: Factories that replace the registered ones, by name.
        manifest: The settings of a replay, which a signal kills: the next one goes on. By default those of the run
            directory.

    Raises:
        FileNotFoundError: It is not a run directory.
        ForeignError: Another user made the manifest, or can write it.
        BlockingIOError: Another agent runs there.
        GoneError: Its files are not where they were.
        StartError: An exporter or a listener cannot be built.
        ValueError: The manifest is damaged.
    """
    directory = run if isinstance(run, RunDirectory) else directories.at(run)
    is_replay = manifest is not None
    manifest = manifest or read_manifest(directory)
    share_with(manifest.agent.share)
    redaction.begin(manifest.agent.redact.patterns, manifest.agent.redact.names, os.environ)
    try:
        parts.check(directory.path, directory.host)
    except PermissionError as error:
        raise StartError(str(error)) from error
    # Before anything is made: at the same path there may be another run by now (faults/test_births.py).
    if Birth(directory.path, directory.local).fate() == "replaced":
        raise RemovedError(directory)
    parts.remake(directory.local)  # a cleaner of temporary files may have removed it
    # Before abandoned files are removed and exporters are built: both are up to the agent that holds the lock
    # (faults/test_liveness.py).
    lock = Lock(directory.agent_lock, patience=patience)
    _raise_descriptor_limit()
    _let_warn()
    remove_abandoned(directory.status.parent, directory.journals, directory.cursors)
    try:
        try:
            missing = 0 if of_archive else catch_up(directory, manifest)
            manifest = secret_options.with_secrets(manifest, os.environ, _given_options)
            agent = Agent(AgentTask(directory, manifest, once, of_archive, missing, exporters))
        except Exception as error:
            raise _failed(directory, error) from error
        # Python sets handlers of signals in the main thread alone, and an agent may run in another one.
        if not is_replay and threading.current_thread() is threading.main_thread():
            stop_signals.set_at((signal.SIGTERM,), agent.stopped)
        return agent.run(lock)
    finally:
        lock.release()


def _failed(directory: RunDirectory, error: Exception) -> StartError:
    """Return why the agent cannot start, and write it into its status file."""
    why = redacted(str(error))
    if isinstance(error, OSError) and error.errno in FULL:
        why = str(unwritable(directory.path.parents[1], directory.local, error))
    failed = AgentStatus(pid=os.getpid(), state="failed", error=why, cause=_cause(error))
    with contextlib.suppress(OSError):  # on a full disk
        write_atomically(directory.status, msgspec.json.encode(failed))
    return StartError(why)


def _given_options() -> dict[str, object]:
    """Return the options of the exporters in the environment and the settings file of this process."""
    with contextlib.suppress(SettingsError):
        return {spec.name: spec.options for spec in loading.load({}).exporters}
    return {}


def work(directory: RunDirectory) -> End:
    """Run the agent of a run directory as the child of its supervisor; return how it ended."""
    log_to_stderr()
    own_process()
    end: End = "crashed"
    try:
        end = "done" if run_agent(directory) else "incomplete"
    except BlockingIOError:
        logger.info("another agent runs in %s", directory.path)
        end = "not needed"
    except (StartError, FileNotFoundError, ForeignError, ValueError) as error:
        logger.error("the agent cannot start: %s", error)
        end = "cannot start"
    except RemovedError as error:
        logger.error("the agent ends: %s", error)
        end = "not needed"
    except GoneError as error:
        logger.error("the agent ends: %s", error)
    except Exception:
        logger.exception("the agent failed")
    logging.shutdown()
    sys.stdout.flush()
    return end
