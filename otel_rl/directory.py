"""The run directory: what lies where, and which part of it belongs to this machine alone."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.export import RunInfo
from otel_rl.settings import AgentSettings, UnwritableError

if TYPE_CHECKING:
    from otel_rl.settings import Settings

_NETWORK_FILE_SYSTEMS = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p", "wekafs"),
    *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.ceph", "fuse.juicefs", "panfs", "pvfs2"),
)
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a disk that has no room, or of which a user has had his share."""
_NEEDED_MIB = 16
"""Disk of a rank that has just begun: a segment of its journal, one of the outbox, and some room."""
_MOST_NAMES = 100
"""Names for temporary data that are tried; other users would have to make as many directories."""


class RunDirectory(NamedTuple):
    """The places in a run directory.

    `local/` holds the journals and the agent's state. Where the run directory is on a network file
    system it is a link into the temporary directory: a network that hangs must not hang a trainer.
    """

    path: Path

    @property
    def manifest(self) -> Path:
        """What the agent has to know of the run."""
        return self.path / "run.json"

    @property
    def own_manifest(self) -> Path:
        """The same for a machine that sends to a head: the run directory may be shared with it."""
        return self.path / "local" / "run.json"

    def targets(self, host: str) -> Path:
        """By which a Prometheus finds the agent of a machine and the inference servers of the run.

        It lies beside the runs of all projects, since Prometheus takes a pattern for the last part of a path alone.
        """
        return self.path.parents[1] / ".targets" / f"{self.path.parent.name}.{self.path.name}.{host}.json"

    @property
    def attempts(self) -> Path:
        """Which attempts of which ranks there were: known to all machines, and after `local/` was removed."""
        return self.path / "attempts"

    @property
    def journals(self) -> Path:
        """One journal for each process and attempt."""
        return self.path / "local" / "journals"

    @property
    def outbox(self) -> Path:
        """The journal of what the destinations are to get."""
        return self.path / "local" / "outbox"

    @property
    def cursors(self) -> Path:
        """How far each destination has got in the outbox."""
        return self.path / "local" / "cursors"

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
        return self.path / "local"

    @property
    def status(self) -> Path:
        """What the agent says of itself."""
        return self.path / "local" / "agent.json"

    @property
    def quarantine(self) -> Path:
        """Records and items that could not be processed."""
        return self.path / "local" / "quarantine.jsonl"

    @property
    def agent_log(self) -> Path:
        """What the agent logs."""
        return self.path / "agent.log"


def create(settings: Settings) -> RunDirectory:
    """Make the run directory, the same on every rank, or find it.

    Raises:
        UnwritableError: It cannot be made or written.
    """
    directory = place_of(settings)
    try:
        make(directory)
    except OSError as error:
        raise unwritable(settings.dir, directory.path, error) from error
    return directory


def place_of(settings: Settings) -> RunDirectory:
    """Return where the run directory is, without making it."""
    label = settings.id if settings.name == settings.id else f"{_file_name(settings.name)}-{settings.id}"
    return RunDirectory(Path(settings.dir).absolute() / _file_name(settings.project) / label)


def private_directory() -> Path:
    """Return a directory in the temporary directory that only this user can write; make it if it is missing.

    Another user may have made the first name, or may be able to write it; then the next name is used.

    Raises:
        OSError: There is no temporary directory that can be written.
    """
    import tempfile

    usual = Path(tempfile.gettempdir()) / f"otel-rl-{os.getuid()}"
    for number in range(_MOST_NAMES):
        place = usual.with_name(f"{usual.name}.{number}") if number else usual
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        if _is_private(place):
            return place
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}."))


def _is_private(place: Path) -> bool:
    """Tell whether this is a directory, no link to one, that belongs to this user and that no other can write."""
    found = place.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def unwritable(chosen: str | Path, place: Path, error: OSError) -> UnwritableError:
    """Return the error of a run that finds a place that it cannot write, with the way out."""
    fix = f"free {_NEEDED_MIB} MiB for each rank, or " if error.errno in FULL else ""
    why = error.strerror or type(error).__name__
    return UnwritableError(
        f"dir={str(chosen)!r}: {place} cannot be written ({why}); {fix}give init(dir=…) or OTEL_RL_DIR a directory "
        "that can"
    )


def make(directory: RunDirectory) -> None:
    """Make what is missing of a run directory.

    Raises:
        OSError: It cannot be made or written.
    """
    _make(directory.path)
    _make_local(directory.path / "local")
    for place in (directory.attempts, directory.journals, directory.outbox, directory.cursors):
        _make(place)


def _make(place: Path) -> None:
    """Make a directory; where the place is a link to one that is gone, make that again."""
    try:
        place.resolve().mkdir(parents=True, exist_ok=True)
    except RuntimeError as error:  # Python before 3.13 does not raise OSError for links in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file in one step; a reader sees the old content or the new.

    Raises:
        OSError: It cannot be written; the error names the file, always in the same words.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # a pid is not unique: containers count from 1
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def disk_usage(path: Path) -> int:
    """Return the bytes of disk that the files in a directory and below it take; what goes meanwhile takes none."""
    found = 0
    # Unlike `rglob`, `walk` passes over a directory that goes meanwhile.
    for directory, directories, files in os.walk(path):
        for name in [*directories, *files]:
            with contextlib.suppress(OSError):
                found += Path(directory, name).stat().st_blocks * 512
    return found


def _make_local(place: Path) -> None:
    if not place.is_symlink():
        if place.is_dir():
            return
        if _file_system(place.parent) not in _NETWORK_FILE_SYSTEMS:
            place.mkdir(exist_ok=True)
            return
        name = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
        with contextlib.suppress(FileExistsError):  # another rank was quicker; the link is the same on every machine
            place.symlink_to(private_directory() / name)
    _make_private(place)
    _make(place)


def _make_private(link: Path) -> None:
    """Make what the link leads to, if that is in a temporary directory, so that only this user can write it.

    A link of an earlier job may lead into the temporary directory of that job.

    Raises:
        PermissionError: Another user made it, or can write it.
    """
    import tempfile

    temporary, target = Path(tempfile.gettempdir()), link.parent.resolve() / link.readlink()
    own = re.compile(rf"otel-rl-{os.getuid()}(\..+)?")
    parts = [*reversed(target.parents), target]
    for number, part in enumerate(parts):
        if temporary not in part.parents and not any(own.fullmatch(one.name) for one in parts[: number + 1]):
            continue
        with contextlib.suppress(FileExistsError):
            part.mkdir(mode=0o700, parents=True)
        if not _is_private(part):
            raise PermissionError(errno.EACCES, f"other users can write {part}", str(part))


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`; empty where there is no /proc."""
    best, kind = "", ""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    real = str(path.resolve())
    for line in mounts:
        _, mount, type_, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        if (real == mount or real.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, type_
    return kind


def _file_name(text: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-")
    return kept[:100] or "run"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: what the agent has to know of the run; no secret is ever in it.

    Attributes:
        id: Identity of the run.
        project: What trackers group runs by.
        name: What people call the run.
        exporters: The destinations that run in the agent, each with its options.
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

    def run(self, directory: RunDirectory) -> RunInfo:
        """Return what destinations know of the run."""
        return RunInfo(self.id, self.project, self.name, str(directory.path), dict(self.resource))
