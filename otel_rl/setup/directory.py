"""The run directory: the paths of its files, and the part that belongs to this machine alone."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.errors import UnwritableError
from otel_rl.export import RunInfo
from otel_rl.journal.atomic_files import make_directory
from otel_rl.setup import parts
from otel_rl.setup.settings import AgentSettings

if TYPE_CHECKING:
    from otel_rl.setup.parts import Part
    from otel_rl.setup.settings import Settings

_ATTEMPTS = "attempts"
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk and of an exhausted quota."""
_NEEDED_MIB = 16
"""MiB of disk that a rank needs to begin: a segment of its journal, one of the outbox, and a reserve."""


class RunDirectory(NamedTuple):
    """The paths in a run directory.

    Attributes:
        path: The run directory; other machines may share it.
        local: The part of this machine: its journals, and the state of its agent.
        host: Name of the part in the run directory.
    """

    path: Path
    local: Path
    host: str

    @property
    def manifest(self) -> Path:
        """The manifest: the settings that the agent needs."""
        return self.path / "run.json"

    @property
    def own_manifest(self) -> Path:
        """The manifest of a machine that sends to a head, with which it may share the run directory."""
        return self.local / "run.json"

    def targets(self, host: str) -> Path:
        """The target file by which Prometheus finds the agent of a machine and the inference servers of the run.

        It is above the runs of all projects, since Prometheus takes a pattern only for the last part of a path.
        """
        return self.path.parents[1] / ".targets" / f"{self.path.parent.name}.{self.path.name}.{host}.json"

    @property
    def attempts(self) -> Path:
        """The attempts of all ranks: all machines can read them, also after `local/` was removed."""
        return self.path / _ATTEMPTS

    @property
    def journals(self) -> Path:
        """One journal for each process and attempt."""
        return self.local / parts.JOURNALS

    @property
    def outbox(self) -> Path:
        """The journal of the items for the exporters."""
        return self.local / parts.OUTBOX

    @property
    def cursors(self) -> Path:
        """The position of each exporter in the outbox."""
        return self.local / parts.CURSORS

    @property
    def agent_lock(self) -> Path:
        """Locked by the agent while it runs: the outbox, which only the agent writes."""
        return self.outbox

    @property
    def supervisor_lock(self) -> Path:
        """Locked by the supervisor, which restarts the agent if it dies."""
        return self.cursors

    @property
    def start_lock(self) -> Path:
        """Locked while an agent starts, or decides to end."""
        return self.local

    @property
    def status(self) -> Path:
        """The status file of the agent."""
        return self.local / "agent.json"

    @property
    def left(self) -> Path:
        """The list of items that the last agent left undelivered."""
        return self.local / "left.json"

    @property
    def quarantine(self) -> Path:
        """Records and items that could not be processed."""
        return self.local / "quarantine.jsonl"

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
    found = [part for part in parts.everyone(path) if part.machine is None or part.machine.is_same(machine)]
    return [with_part(path, part) for part in found if part.place.is_dir()]


def create(settings: Settings, *, sends: bool = False) -> RunDirectory:
    """Create or find the run directory, which is the same on every rank.

    Args:
        settings: Settings of the run.
        sends: If true, this machine sends to a head.

    Raises:
        UnwritableError: It cannot be created or written.
    """
    path = place_of(settings)
    try:
        return make(path, settings.local_dir, sends=sends)
    except OSError as error:
        raise unwritable(settings.dir, path, error) from error


def place_of(settings: Settings) -> Path:
    """Return the path of the run directory, without creating it."""
    label = settings.id if settings.name == settings.id else f"{_file_name(settings.name)}-{settings.id}"
    return Path(settings.dir).absolute() / _file_name(settings.project) / label


def unwritable(chosen: str | Path, place: Path, error: OSError) -> UnwritableError:
    """Return the error for a directory that a run cannot write, with the fix."""
    fix = f"free {_NEEDED_MIB} MiB for each rank, or " if error.errno in FULL else ""
    why = error.strerror or type(error).__name__
    return UnwritableError(
        f"dir={str(chosen)!r}: {place} cannot be written ({why}); {fix}give init(dir=…) or OTEL_RL_DIR a directory "
        "that can"
    )


def make(path: Path, local_dir: str = "", *, sends: bool = False) -> RunDirectory:
    """Create the missing directories of a run directory and of the part of this machine.

    Args:
        path: The run directory.
        local_dir: Directory of the part if the run directory is shared; empty for one that outlives the job.
        sends: If true, this machine sends to a head.

    Raises:
        OSError: It cannot be created or written.
    """
    make_directory(path)
    make_directory(path / _ATTEMPTS)
    return with_part(path, parts.make(path, parts.this_machine(), local_dir, parts.SENDER if sends else ""))


def remake(directory: RunDirectory) -> None:
    """Recreate the directories that somebody removed.

    Raises:
        OSError: It cannot be created or written.
    """
    make_directory(directory.attempts)
    parts.remake(directory.local)


def above(journal: Path) -> RunDirectory:
    """Return the run directory of a journal; for a journal outside of any, its path does not exist."""
    local = journal.parents[1]
    return RunDirectory(local.parents[1], local, local.name)


def _file_name(text: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-")
    return kept[:100] or "run"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `run.json`: the settings that the agent needs, without any secret.

    Attributes:
        id: Identity of the run.
        project: Name by which trackers group runs.
        name: Display name of the run.
        exporters: Exporters that run in the agent, each with its options.
        readers: Metric readers, each with its options.
        resource: OpenTelemetry resource attributes.
        dialect: Framework whose metric names are expected; "auto" if the trainer's imports do not show it.
        agent: Settings of rows, traces, FLOPs and hardware.
        receives: `host:port` on which the agent receives records of other machines; empty for none.
        idle_timeout: Seconds without a living trainer or progress after which the agent ends.
        journal_limit: Maximum size of the outbox in bytes.
    """

    id: str
    project: str
    name: str
    exporters: list[tuple[str, dict[str, object]]]
    readers: list[tuple[str, dict[str, object]]]
    resource: dict[str, str]
    dialect: str
    agent: AgentSettings
    receives: str = ""
    idle_timeout: float
    journal_limit: int

    @property
    def sends(self) -> bool:
        """If true, the agent sends the records of its machine to a head agent."""
        return any(name == "head" for name, _ in self.exporters)

    def run(self, directory: RunDirectory) -> RunInfo:
        """Return the description of the run for exporters."""
        return RunInfo(self.id, self.project, self.name, str(directory.path), dict(self.resource))
