"""The small files of a run directory, which another program may have changed."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import RunInfo
from otel_rl.recorder.agent.repair.refill import catch_up
from otel_rl.recorder.archive import delivered
from otel_rl.recorder.archive.delivered import Delivered
from otel_rl.recorder.directory import agent_start, attempt_entries, parts
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.attempt_entries import Start
from otel_rl.recorder.directory.attempts import belongs
from otel_rl.recorder.directory.directory import read_manifest
from otel_rl.recorder.directory.parts import Pointer
from otel_rl.recorder.journal import claim
from otel_rl.recorder.settings.launcher import Launch
from otel_rl.serve.bridge.runs import Runs
from tests.fuzz import samples
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.directory.directory import RunDirectory

_JOURNAL = "rank0.attempt0.0123456789abcdef"
_START = Start(
    launch=Launch(supervisor="9/1", supervised=1, port="29500"),
    who="rank1",
    world_size=2,
    label="p/",
    host="host",
    process="7/1",
    command="0" * 16,
    time=1.0,
)


class RunFiles(Target):
    """One file of a run directory has the content of the input; the first byte chooses which.

    A damaged file is treated as missing, or reported as damaged, and no file outside of the run directory changes.
    """

    most_memory = 96 << 20

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        attempt_entries._WRITTEN_WITHIN_S = 0.0  # a damaged entry of a network file system is awaited
        run = samples.finished(folder / "runs")
        self._intact = run.rename(folder / "intact")
        found = directories.at(self._intact)
        self._part = found.local.relative_to(self._intact)
        self._manifest = found.manifest.read_bytes()
        self._status = found.status.read_bytes()

    def seeds(self) -> list[bytes]:
        machine = parts.this_machine()
        encode = msgspec.json.encode
        pointer = Pointer(place=str(self.folder / "elsewhere"), machine=machine)
        noted = claim.Noted(_JOURNAL, self._part.name)
        bridged = RunInfo("run", "p", "run", str(self.folder / "run"), {"service.name": "x"})
        fed = Delivered(who="pid 7 on node2", exporters={"jsonl": {"Row": 3}}, works=False)
        contents = [self._manifest, self._status, encode(pointer), encode(machine), encode(noted), encode(_START)]
        contents += [
            b"running",
            encode(bridged),
            encode(fed),
        ]
        return [bytes([kind]) + content for kind, content in enumerate(contents)]

    def check(self, data: bytes) -> None:
        if not data:
            return
        run = self.folder / "run"
        shutil.copytree(self._intact, run)
        try:
            readers = (self._read_manifest, self._read_status, self._read_part, self._read_owner, self._read_noted)
            more = (self._read_start, self._read_state, self._resume, self._refill)
            every = readers + more
            every[data[0] % len(every)](run, data[1:])
        finally:
            shutil.rmtree(run)
            shutil.rmtree(self.folder / "elsewhere", ignore_errors=True)

    def _read_manifest(self, run: Path, data: bytes) -> None:
        found = directories.at(run)
        found.manifest.write_bytes(data)
        try:
            manifest = read_manifest(found)
        except ValueError:
            return
        if manifest.run(found).directory != str(run):
            raise Broken("a manifest moves the run")

    def _read_status(self, run: Path, data: bytes) -> None:
        found = directories.at(run)
        found.status.write_bytes(data)
        agent_start.incomplete(agent_start.read_status(found))

    def _read_part(self, run: Path, data: bytes) -> None:
        shutil.rmtree(run / self._part)
        (run / self._part).write_bytes(data)
        parts.everyone(run)
        directories.here(run)
        parts.find(run, parts.this_machine())

    def _read_owner(self, run: Path, data: bytes) -> None:
        (run / self._part / parts.OWNER).write_bytes(data)
        parts.everyone(run)
        parts.make(run, parts.this_machine())

    def _read_noted(self, run: Path, data: bytes) -> None:
        attempts = run / "attempts"
        for name in ("rank0.attempt0", "rank0.attempt1"):
            (attempts / name).write_bytes(data)
        claim.noted(attempts)
        claim.mark_delivered(attempts, [_JOURNAL])

    def _read_start(self, run: Path, data: bytes) -> None:
        found = directories.at(run)
        (found.attempts / "attempt7").write_bytes(data)
        self._join(found)

    def _read_state(self, run: Path, data: bytes) -> None:
        found = directories.at(run)
        (found.attempts / "attempt0.elsewhere").write_bytes(data)
        self._join(found)

    def _join(self, found: RunDirectory) -> None:
        seen = attempt_entries.newest(found, _START.who)
        if seen is None:
            raise Broken("no attempt")
        belongs(_START, seen)

    def _resume(self, run: Path, data: bytes) -> None:
        bridged = run / "bridged" / "p" / "run"
        bridged.mkdir(parents=True)
        (bridged / "bridge.json").write_bytes(data)
        runs = Runs(run / "bridged", [], limit_bytes=64 << 20)
        runs.resume()
        runs.close(0.0)

    def _refill(self, run: Path, data: bytes) -> None:
        found = directories.at(run)
        delivered.place_of(run, found.host).write_bytes(data)
        with contextlib.suppress(BlockingIOError):
            catch_up(found, directories.read_manifest(found))
