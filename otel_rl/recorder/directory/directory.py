"""The run directory: the paths of its files, and the part that belongs to this machine alone."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.export import RunInfo
from otel_rl.recorder.directory import parts
from otel_rl.recorder.errors import UNDECODABLE, UnwritableError, sinks
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.files.modes import PRIVATE, TRAVERSED, chosen, close_to_others, make_directory, set_mode
from otel_rl.recorder.files.own_files import check_levels, check_own, is_own, read_own
from otel_rl.recorder.settings.settings import AgentSettings

if TYPE_CHECKING:
    from otel_rl.recorder.directory.parts import Part
    from otel_rl.recorder.settings.settings import Settings

_warnings = Occasional(sinks.log_of("otel_rl"))
_MANIFEST, ATTEMPTS, UNSENT = "run.json", "attempts", "unsent"
_BELIEVED = (_MANIFEST, ATTEMPTS, UNSENT, parts.LOCAL, parts.ARCHIVE)
"""The entries of a run directory that the agent believes only if no other user can write them."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk and of an exhausted quota."""
_NEEDED_MIB = 16
"""MiB of disk that a rank needs to begin: a segment of its journal, one of the outbox, and a reserve."""


class _Place(NamedTuple):
    path: Path  # the run directory; other machines may share it
    local: Path  # the part of this machine: its journals, and the state of its agent
    host: str  # name of the part in the run directory


class RunDirectory(_Place):
    """The paths in a run directory."""

    def __init__(self, path: Path, local: Path, host: str) -> None:
        self.manifest = path / _MANIFEST  # the settings that the agent needs
        self.own_manifest = local / _MANIFEST  # of a machine that sends to a head, with which it may share `path`
        self.attempts = path / ATTEMPTS  # of all ranks: all machines can read them, also after `local/` was removed
        self.journals = local / parts.JOURNALS  # one journal for each process and attempt
        self.outbox = local / parts.OUTBOX  # the journal of the items for the exporters
        self.cursors = local / parts.CURSORS  # the position of each exporter in the outbox
        self.agent_lock = self.outbox  # locked by the agent while it runs: only the agent writes the outbox
        self.supervisor_lock = self.cursors  # locked by the supervisor, which restarts the agent if it dies
        self.start_lock = local  # locked while an agent starts, or decides to end
        self.status = local / "agent.json"  # the status file of the agent
        self.events = local / "events.json"  # the last events of the agent, for callbacks of trainers
        self.quarantine = local / "quarantine.jsonl"  # records and items that could not be processed

    def targets(self, host: str) -> Path:
        """Return the target file by which Prometheus finds the agent of a machine and the run's inference servers.

        It is above the runs of all projects, since Prometheus takes a pattern only for the last part of a path.
        """
        return self.path.parents[1] / ".targets" / f"{self.path.parent.name}.{self.path.name}.{host}.json"

    @property
    def is_elsewhere(self) -> bool:
        """Whether the part of this machine is outside of the run directory."""
        return not self.local.resolve().is_relative_to(self.path.resolve())

    @property
    def agent_log(self) -> Path:
        """The log of the agent; an agent that sends to a head has one in addition to that of the head."""
        return self.path / (f"agent.{self.host}.log" if self.own_manifest.exists() else "agent.log")


def at(path: Path) -> RunDirectory:
    """Return the run directory at a path, with the part of this machine, without creating anything."""
    run, machine = path.absolute(), parts.this_machine()
    part = parts.find(run, machine)
    if not part.place.is_dir() and (other := parts.find(run, machine, parts.SENDER)).place.is_dir():
        return with_part(run, other)
    return with_part(run, part)


def with_part(path: Path, part: Part) -> RunDirectory:
    """Return the run directory with the part of a machine."""
    return RunDirectory(path, part.place, part.name)


def here(path: Path) -> list[RunDirectory]:
    """Return the run directory with each part that is on this machine, whatever its host name was."""
    machine = parts.this_machine()
    own_parts = (part for part in parts.everyone(path) if part.may_be_of(machine))
    return [with_part(path, part) for part in own_parts if part.place.is_dir()]


def create(settings: Settings, *, sends: bool = False) -> RunDirectory:
    """Create or find the run directory, which is the same on every rank; `sends` is as in `make`.

    Raises:
        UnwritableError: It cannot be created or written.
    """
    path = place_of(settings)
    try:
        return make(path, settings.local_dir, sends=sends, strict=settings.strict)
    except OSError as error:
        raise unwritable(settings.dir, path, error) from error


def place_of(settings: Settings) -> Path:
    """Return the path of the run directory, without creating it."""
    name = sinks.readable(settings.name) or "run"
    label = settings.id if settings.name == settings.id else f"{name}-{settings.id}"
    return sinks.at(sinks.at(Path(settings.dir).absolute(), sinks.file_name(settings.project)), label)


def unwritable(chosen: str | Path, place: Path, error: OSError) -> UnwritableError:
    """Return the error for a directory that a run cannot write, with the fix."""
    fix = f"free {_NEEDED_MIB} MiB for each rank, or " if error.errno in FULL else ""
    why = error.strerror or type(error).__name__
    return UnwritableError(
        f"dir={str(chosen)!r}: {place} cannot be written ({why}); {fix}give init(dir=…) or OTEL_RL_DIR a directory "
        "that can"
    )


def make(path: Path, local_dir: str = "", *, sends: bool = False, strict: bool = False) -> RunDirectory:
    """Create the missing directories of a run directory and of the part of this machine.

    Args:
        path: The run directory.
        local_dir: Directory of the part if the run directory is shared; empty for one that outlives the job.
        sends: If true, this machine sends to a head.
        strict: If true, raise if another user made a directory that would be used.

    Raises:
        OSError: It cannot be created or written, or another user can write it.
    """
    check_levels(path)
    make_directory(path.parents[1], chosen().directory | TRAVERSED)
    make_directory(path)
    # Before the check, which would refuse what an earlier version left open to others (security/test_private_files.py).
    _open_as_chosen(path)
    check_own(path.resolve())
    make_directory(path / ATTEMPTS)
    kind = parts.SENDER if sends else ""
    return with_part(path, parts.make(path, parts.this_machine(), local_dir, kind, strict=strict))


def _open_as_chosen(run: Path) -> None:
    """Let only those read a run directory that exists who may: an earlier version left it open to all.

    The directory of the project lets the readers of one of its runs pass.
    """
    run, wanted = run.resolve(), chosen().directory
    if wanted != PRIVATE.directory and is_own(run.parent):
        set_mode(run.parent, _mode_of(run.parent) | wanted)
    if not is_own(run) or (mode := _mode_of(run)) == wanted:
        return
    set_mode(run, wanted)
    if mode & ~wanted:
        for name in _BELIEVED:  # what else is there, such as the user's checkpoints, is out of reach now
            close_to_others(run / name)
    if (mode := _mode_of(run)) != wanted:
        _warnings.warn(f"the file system of {run} keeps mode {mode:04o}: other users may read the run")


def remake(directory: RunDirectory) -> None:
    """Recreate the directories that somebody removed.

    Raises:
        OSError: It cannot be created or written.
    """
    make_directory(directory.attempts)
    parts.remake(directory.local)
    if directory.is_elsewhere:
        parts.remake_pointer(directory.path, directory.host, directory.local)


def _mode_of(directory: Path) -> int:
    return stat.S_IMODE(directory.stat().st_mode) & 0o777


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `run.json`: the settings that the agent needs, without any secret."""

    id: str
    project: str  # name by which trackers group runs
    name: str  # display name of the run
    exporters: list[tuple[str, dict[str, object]]]  # those that run in the agent, each with its options
    readers: list[tuple[str, dict[str, object]]]  # metric readers, each with its options
    resource: dict[str, str]  # OpenTelemetry resource attributes
    dialect: str  # framework whose metric names are expected; "auto" if the trainer's imports do not show it
    agent: AgentSettings
    receives: str = ""  # `host:port` on which the agent receives records of other machines; empty for none
    idle_timeout: float  # seconds without a living trainer or progress after which the agent ends
    journal_limit: int  # maximum size of the outbox in bytes

    @property
    def sends(self) -> bool:
        """If true, the agent sends the records of its machine to a head agent."""
        return any(name == "head" for name, _ in self.exporters)

    def run(self, directory: RunDirectory) -> RunInfo:
        """Return the description of the run for exporters."""
        return RunInfo(self.id, self.project, self.name, str(directory.path), dict(self.resource), directory.host)


def read_manifest(directory: RunDirectory) -> Manifest:
    """Return the settings of a run.

    Raises:
        FileNotFoundError: It is not a run directory.
        ForeignError: Another user made the manifest, or can write it: it names code that the agent imports.
        ValueError: The manifest is damaged.
    """
    place = directory.own_manifest if directory.own_manifest.exists() else directory.manifest
    try:
        return msgspec.json.decode(read_own(place), type=Manifest)
    except UNDECODABLE as error:
        raise ValueError(f"{place} is damaged ({error}); start the run again, or restore the file") from error
