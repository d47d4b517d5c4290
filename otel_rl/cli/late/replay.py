"""Replays what a run has in its archive to exporters that it did not have, with its own times, steps and attempts.

The agent delivers it, from an outbox that is made of the archive, as it does for a machine that is gone. The cursor of
each destination outlives the replay, so that the next one goes on behind it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import TYPE_CHECKING

import msgspec

from otel_rl import semconv
from otel_rl.cli.late import feed
from otel_rl.cli.late.exported import Exported
from otel_rl.cli.late.plain import Plain
from otel_rl.cli.options import exporters
from otel_rl.export import ENTRY_POINT_GROUP
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.agent.repair.refill import ARCHIVE_EXPORTER, UNLIMITED_BYTES, has_everything, refill
from otel_rl.recorder.archive.now import place_of as now_of
from otel_rl.recorder.archive.replay import Replay, totals
from otel_rl.recorder.archive.runs import machines, place_of
from otel_rl.recorder.archive.writer import time_of
from otel_rl.recorder.delivery import plugins
from otel_rl.recorder.delivery.progress import Cursor, cursor_file
from otel_rl.recorder.directory import agent_start, births, parts, secret_options
from otel_rl.recorder.directory.directory import Manifest, RunDirectory
from otel_rl.recorder.directory.parts import ARCHIVE, LOCAL
from otel_rl.recorder.errors import SettingsError, sinks
from otel_rl.recorder.errors.texts import meant
from otel_rl.recorder.files.atomic_files import read_json
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.files.outputs import check_target
from otel_rl.recorder.files.private_directories import home, private_directory
from otel_rl.recorder.secrets import is_secret
from otel_rl.recorder.settings import loading
from otel_rl.recorder.settings.settings import AgentSettings, Hardware

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from otel_rl.recorder.archive.delivered import Counts

_IDLE_S = 60.0
"""Seconds without progress after which a destination that does not answer is given up, as an agent does by default."""
_SAYS_WHERE = ("_ENDPOINT", "_URI", "_URL", "_MODE", "_ENTITY", "_EXPERIMENT_NAME")
"""Endings of the variables by which exporters find their destination."""


def exporters_of(names: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the exporters of a replay with their options, which the settings file and the variables have.

    Raises:
        SettingsError: One is unknown, cannot be built, or writes what is read here.
    """
    given = {spec.name: dict(spec.options) for spec in loading.load({}).exporters}
    wanted: dict[str, dict[str, object]] = {}
    for name in names:
        if name not in exporters() and ":" not in name:
            raise SettingsError(f"unknown exporter {name!r}{meant(name, exporters())}")
        wanted |= {signal: {} for signal in plugins.OTLP} if name == "otlp" else {name: given.get(name, {})}
    for name, options in wanted.items():
        plugins.check(ENTRY_POINT_GROUP, name, options)
    return wanted


def replay(
    run: Path,
    exporters: Mapping[str, Mapping[str, object]],
    say: Callable[[str], None],
    *,
    into: Path | None = None,
    again: bool = False,
) -> Exported:
    """Give each exporter what earlier replays to the same destination have not given it.

    Args:
        run: The run directory.
        exporters: Names of exporters with their options.
        say: Prints a message for the user.
        into: A directory for the files that exporters write, in place of the run directory.
        again: If true, each exporter gets everything again, except for what its destination says that it has.

    Raises:
        FileNotFoundError: It is not a run directory.
        ValueError: It has neither an archive nor rows.
        OSError: Something cannot be read or written, or another process replays the run to the same destination.
        StartError: An exporter cannot be built.
    """
    source = _Source(run)
    new_items, is_complete = {}, source.is_complete(say)
    for name, options in exporters.items():
        new: Counts = {}
        for machine in source.machines:
            destination = _Destination(source, machine, name, options, into, say)
            if not feed.has_ended(source.root, machine, lambda: say("waiting until the agent of the run has ended")):
                say(f"the agent of {machine} runs; run this again when the training has ended")
                is_complete = False
                continue
            is_complete &= destination.replay(say, again=again)
            for kind, count in destination.new.items():
                new[kind] = new.get(kind, 0) + count
        new_items[name] = new
    return Exported(new=new_items, complete=is_complete)


def _data_of(settings: AgentSettings, say: Callable[[str], None]) -> AgentSettings:
    """Return the settings of a run that are data: its manifest may be somebody else's.

    Functions come from the settings of this process, as does who may read the files.
    """
    own, rows = loading.load({}), settings.rows
    if isinstance(rows.metrics, str) and rows.metrics not in ("usual", "full"):
        if rows.metrics != own.rows.metrics:
            say(f"rows.metrics={rows.metrics!r} of run.json is not called; set OTEL_RL_ROWS_METRICS to call it")
        rows = msgspec.structs.replace(rows, metrics=own.rows.metrics)
    return AgentSettings(
        reduce=settings.reduce,
        share=own.share,
        stalled_after=settings.stalled_after,
        rows=rows,
        traces=settings.traces,
        flops=settings.flops,
        hardware=Hardware(enabled=False),
        redact=msgspec.structs.replace(settings.redact, function=own.redact.function),
    )


class _Source:
    """The archive of a run, or what `rows.jsonl` has, as an archive."""

    def __init__(self, run: Path) -> None:
        self.place = place_of(run)
        self.root = self.place.path
        self._plain = Plain(self.root)  # which removes its directory in the end
        archived = machines(self.root / ARCHIVE)
        if not archived:
            self.root = self._plain.archive().parent
            archived = machines(self.root / ARCHIVE)
        if not archived:
            raise ValueError(
                f"{run} has no archive and no rows; if its records were not delivered yet: otel-rl agent {run} --once"
            )
        self.machines = sorted(archived, key=self._begin)  # one that took over from another comes after it

    def is_complete(self, say: Callable[[str], None]) -> bool:
        """Return whether the archive has all that was recorded, as far as it says so; report what it lacks."""
        lacking = [
            machine
            for machine in self.machines
            if now_of(self.root, machine).exists() and not has_everything(self.root, machine)
        ]
        for machine in lacking:
            say(f"the archive lacks a part of what {machine} recorded; save it with: otel-rl agent {self.root} --once")
        return not lacking

    def _begin(self, machine: str) -> int:
        place = self.root / ARCHIVE / machine
        return next((time_of(item) for *_, item in Replay(place, {}, {})), 0)


class _Destination:
    """An exporter that gets what a machine has in the archive.

    Attributes:
        new: Number of items by kind that were new to it.
    """

    def __init__(
        self,
        source: _Source,
        machine: str,
        name: str,
        options: Mapping[str, object],
        into: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self._root, self._machine, self._name = source.root, machine, name
        self.new: Counts = {}
        place = source.place
        # The id is a text of the run, which trackers make paths of: it may be of somebody else.
        label = sinks.file_name(place.id or place.path.name)
        target = sinks.at(sinks.at(into.absolute(), sinks.file_name(place.project)), label) if into else place.path
        known = read_json(RunDirectory(place.path, place.path, machine).manifest, Manifest)  # `None` if it is foreign
        identity = {semconv.RUN_ID: label, semconv.RUN_NAME: place.name, semconv.RUN_PROJECT: place.project}
        self._manifest = Manifest(
            id=label,
            project=place.project,
            name=place.name,
            exporters=[(name, dict(options))],
            readers=[],
            resource={semconv.SERVICE_NAME: place.project, **(known.resource if known else {}), **identity},
            dialect=known.dialect if known else "auto",
            agent=_data_of(known.agent, say) if known else AgentSettings(hardware=Hardware(enabled=False)),
            idle_timeout=_IDLE_S,
            journal_limit=UNLIMITED_BYTES,
        )
        if into is None:
            check_target(target, apart=frozenset((ARCHIVE, LOCAL)))
        make_directory(target)
        where = (births.birth_of(target), str(target), machine, *self._where())  # a new run in its place has another
        digest = hashlib.sha256(os.fsencode("\0".join(where))).hexdigest()[:16]
        work = (home() or private_directory()) / f"{digest}.replay"
        self._directory = RunDirectory(target, work, machine)

    def _where(self) -> list[str]:
        """Return what says where the exporter sends to: its options and variables, without secrets."""
        (name, options), *_ = secret_options.without_secrets(self._manifest)[0].exporters
        heads = ("OTEL_EXPORTER_OTLP_",) if name in plugins.OTLP else (f"{name.upper()}_",)
        variables = (
            f"{key}={value}"
            for key, value in os.environ.items()
            if key.startswith(heads) and key.endswith(_SAYS_WHERE) and not is_secret(key)
        )
        return [name, msgspec.json.encode(options, order="sorted").decode(), *sorted(variables)]

    def replay(self, say: Callable[[str], None], *, again: bool) -> bool:
        """Give the exporter what it lacks; return whether it has everything."""
        directory, work = self._directory, self._directory.local
        parts.remake(work)
        every = totals(self._root / ARCHIVE / self._machine)
        with Lock(directory.supervisor_lock):
            before = {} if again else self._passed()
            if all(before.get(kind, 0) >= count for kind, count in every.items()):
                return True
            missing = refill(self._root, self._machine, work, {self._name: before, ARCHIVE_EXPORTER: every})
            is_complete = run_agent(directory, once=True, of_archive=True, manifest=self._manifest)
            after = self._passed()
            self.new = {
                kind: count - before.get(kind, 0) for kind, count in after.items() if count > before.get(kind, 0)
            }
            if not is_complete:
                say(f"{self._name}: {agent_start.incomplete(agent_start.read_status(directory))}")
            if missing:
                say(f"{self._name}: {missing} item(s) are missing in the archive")
            with contextlib.suppress(OSError):
                shutil.rmtree(directory.outbox)
        return is_complete and not missing

    def _passed(self) -> Counts:
        cursor = read_json(self._directory.cursors / cursor_file(self._name), Cursor)
        return cursor.passed if cursor is not None else {}
