"""The run directory: what lies where, and which part of it belongs to this machine alone."""

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
"""Error numbers of a disk that has no room, or of which a user has had his share."""
_NEEDED_MIB = 16
"""Disk of a rank that has just begun: a segment of its journal, one of the outbox, and some room."""


class RunDirectory(NamedTuple):
    """The places in a run directory.

    Attributes:
        path: The run directory; other machines may share it.
        local: The part of this machine: its journals, and the state of its agent.
        host: What the part is called in the run directory.
    """

    path: Path
    local: Path
    host: str

    @property
    def manifest(self) -> Path:
        """What the agent has to know of the run."""
        return self.path / "run.json"

    @property
    def own_manifest(self) -> Path:
        """The same for a machine that sends to a head: the run directory may be shared with it."""
        return self.local / "run.json"

    def targets(self, host: str) -> Path:
        """By which a Prometheus finds the agent of a machine and the inference servers of the run.

        It lies beside the runs of all projects, since Prometheus takes a pattern for the last part of a path alone.
        """
        return self.path.parents[1] / ".targets" / f"{self.path.parent.name}.{self.path.name}.{host}.json"

    @property
    def attempts(self) -> Path:
        """Which attempts of which ranks there were: known to all machines, and after `local/` was removed."""
        return self.path / _ATTEMPTS

    @property
    def journals(self) -> Path:
        """One journal for each process and attempt."""
        return self.local / parts.JOURNALS

    @property
    def outbox(self) -> Path:
        """The journal of what the exporters are to get."""
        return self.local / parts.OUTBOX

    @property
    def cursors(self) -> Path:
        """How far each exporter has got in the outbox."""
        return self.local / parts.CURSORS

    @property
    def agent_lock(self) -> Path:
        """Locked by the agent for as long as it runs: the outbox, which it alone writes."""
        return self.outbox

    @property
    def supervisor_lock(self) -> Path:
        """Locked by whoever starts the agent again if it dies."""
        return self.cursors

    @property
    def start_lock(self) -> Path:
        """Locked while an agent is being started, or decides to end."""
        return self.local

    @property
    def status(self) -> Path:
        """What the agent says of itself."""
        return self.local / "agent.json"

    @property
    def left(self) -> Path:
        """What the last agent left undelivered."""
        return self.local / "left.json"

    @property
    def quarantine(self) -> Path:
        """Records and items that could not be processed."""
        return self.local / "quarantine.jsonl"

    @property
    def agent_log(self) -> Path:
        """What the agent logs; an agent that sends to a head has a log of its own, beside that of the head."""
        return self.path / (f"agent.{self.host}.log" if self.own_manifest.exists() else "agent.log")


def at(path: Path) -> RunDirectory:
    """Return the run directory at a path, with the part of this machine; nothing is made."""
    run, machine = path.absolute(), parts.this_machine()
    part = parts.find(run, machine)
    if not part.place.is_dir() and (other := parts.find(run, machine, parts.SENDER)).place.is_dir():
        return with_part(run, other)
    return with_part(run, part)


def with_part(path: Path, part: Part) -> RunDirectory:
    """Return the run directory with the part of a machine."""
    return RunDirectory(path, part.place, part.name)


def here(path: Path) -> list[RunDirectory]:
    """Return the run directory with each part of it that is on this machine, whatever the machine was called then."""
    machine = parts.this_machine()
    found = [part for part in parts.everyone(path) if part.machine is None or part.machine.is_same(machine)]
    return [with_part(path, part) for part in found if part.place.is_dir()]


def create(settings: Settings, *, sends: bool = False) -> RunDirectory:
    """Make the run directory, the same on every rank, or find it.

    Args:
        settings: Of the run.
        sends: If true, this machine sends to a head.

    Raises:
        UnwritableError: It cannot be made or written.
    """
    path = place_of(settings)
    try:
        return make(path, settings.local_dir, sends=sends)
    except OSError as error:
        raise unwritable(settings.dir, path, error) from error


def place_of(settings: Settings) -> Path:
    """Return where the run directory is, without making it."""
    label = settings.id if settings.name == settings.id else f"{_file_name(settings.name)}-{settings.id}"
    return Path(settings.dir).absolute() / _file_name(settings.project) / label


def unwritable(chosen: str | Path, place: Path, error: OSError) -> UnwritableError:
    """Return the error of a run that finds a place that it cannot write, with the way out."""
    fix = f"free {_NEEDED_MIB} MiB for each rank, or " if error.errno in FULL else ""
    why = error.strerror or type(error).__name__
    return UnwritableError(
        f"dir={str(chosen)!r}: {place} cannot be written ({why}); {fix}give init(dir=…) or OTEL_RL_DIR a directory "
        "that can"
    )


def make(path: Path, local_dir: str = "", *, sends: bool = False) -> RunDirectory:
    """Make what is missing of a run directory and of the part of this machine.

    Args:
        path: The run directory.
        local_dir: Where the part goes if the run directory is shared; empty for a directory that outlives the job.
        sends: If true, this machine sends to a head.

    Raises:
        OSError: It cannot be made or written.
    """
    make_directory(path)
    make_directory(path / _ATTEMPTS)
    return with_part(path, parts.make(path, parts.this_machine(), local_dir, parts.SENDER if sends else ""))


def remake(directory: RunDirectory) -> None:
    """Make again what somebody removed.

    Raises:
        OSError: It cannot be made or written.
    """
    make_directory(directory.attempts)
    parts.remake(directory.local)


def above(journal: Path) -> RunDirectory:
    """Return the run directory that a journal lies in; one outside of any has a path that does not exist."""
    local = journal.parents[1]
    return RunDirectory(local.parents[1], local, local.name)


def _file_name(text: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-")
    return kept[:100] or "run"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: what the agent has to know of the run; no secret is ever in it.

    Attributes:
        id: Identity of the run.
        project: What trackers group runs by.
        name: What people call the run.
        exporters: Those that run in the agent, each with its options.
        readers: The ways out for instruments, each with its options.
        resource: OTel resource attributes.
        dialect: Which framework's names to expect, "auto" if the trainer's imports did not tell.
        agent: How rows are made and the machine is measured.
        receives: Where the agent listens for what other machines record, as `host:port`; empty for nowhere.
        idle_timeout: Seconds without life or progress after which the agent ends.
        journal_limit: Bytes that the outbox keeps.
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
        """Whether the agent sends the records of its machine to a head agent."""
        return any(name == "head" for name, _ in self.exporters)

    def run(self, directory: RunDirectory) -> RunInfo:
        """Return what exporters know of the run."""
        return RunInfo(self.id, self.project, self.name, str(directory.path), dict(self.resource))
