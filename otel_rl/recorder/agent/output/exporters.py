"""All exporters of an agent: those that read the outbox, each in a thread, and the readers of its metrics."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from otel_rl.export import READER_ENTRY_POINT_GROUP
from otel_rl.recorder.agent.steps.boundaries import without_phase_memory
from otel_rl.recorder.delivery import plugins
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox_reader import count_before
from otel_rl.semconv.dialect import dialect_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import Exporter, RunInfo
    from otel_rl.recorder.agent.openings import Openings
    from otel_rl.recorder.delivery.outbox import Outbox
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory

_CLOSE_WITHIN_S = 30.0
_CATCH_UP_S = 2.0
"""Time in seconds for exporters that have not failed, such as the archive, to get the last items."""
_LOOK_S = 0.02


class Exporters:
    """Builds the exporters and the metric readers of a run.

    Args:
        factories: Factories that replace the registered ones, by name.
        once: If true, there is no metrics endpoint.

    Attributes:
        threads: The exporters that read the outbox.
        readers: The metric readers, by name.

    Raises:
        OSError: A port or a file cannot be had, and the run is strict.
        SettingsError: An option of a reader is invalid.
        ImportError: An exporter cannot be imported.
    """

    def __init__(
        self,
        directory: RunDirectory,
        manifest: Manifest,
        outbox: Outbox,
        openings: Openings,
        factories: Mapping[str, Callable[..., Exporter]],
        *,
        once: bool,
    ) -> None:
        run = manifest.run(directory)
        self._outbox = outbox
        is_usual = manifest.agent.rows.metrics == "usual" and not dialect_file(manifest.dialect).phase_memory
        self.readers: dict[str, Any] = {}
        for name, options in manifest.readers:
            if not (once and name == "prometheus"):
                self._open_reader(name, options, run, openings)
        self.threads = [
            ExporterThread(
                *(name, factories.get(name) or plugins.find_exporter(name), options),
                *(run, outbox, directory.cursors),
                usual=without_phase_memory if is_usual else None,
                logs=manifest.agent.output.send,
            )
            for name, options in manifest.exporters
        ]

    @property
    def address(self) -> str | None:
        """The address of the metrics endpoint; `None` if there is none."""
        return next((reader.address for reader in self.readers.values() if reader.address), None)

    @property
    def needs_token(self) -> bool:
        """Whether the metrics endpoint needs a token."""
        return any(getattr(reader, "needs_token", False) for reader in self.readers.values())

    @property
    def by_name(self) -> dict[str, Any]:
        """All exporters, and the metric readers that push, by name."""
        pushing = {f"{name}_metrics": one for name, one in self.readers.items() if hasattr(one, "causes")}
        return {one.label: one for one in self.threads} | pushing

    @property
    def has_delivered(self) -> bool:
        """Whether each exporter has everything that is in the outbox."""
        return all(one.has_everything for one in self.threads)

    @property
    def is_durable(self) -> bool:
        """Whether each exporter's backend has everything that is in the outbox."""
        return all(one.delivered >= self._outbox.end for one in self.threads)

    @property
    def are_closed(self) -> bool:
        """Whether each exporter has ended."""
        return not any(one.is_alive() for one in self.threads)

    @property
    def are_shut(self) -> bool:
        """Whether each exporter is shut down with everything delivered; see `shut_if_done`."""
        return all(one.is_shut for one in self.threads)

    @property
    def progress(self) -> object:
        """A value that changes when an exporter gets on."""
        return [one.signs for one in self.threads]

    def are_at_work(self, now: float) -> bool:
        """Return whether an exporter is in a call that may still work; `now` is monotonic."""
        return any(one.is_at_work(now) for one in self.threads)

    def shut_if_done(self, *, is_done: bool) -> None:
        """Shut each exporter down when it has everything, if nothing more is expected."""
        for one in self.threads:
            one.shut_if_done(is_done=is_done)

    def waiting(self) -> dict[str, int]:
        """Return how many items each exporter has not got, by name; an exporter with everything is left out.

        An exporter that cannot be shut down has not got at least one of them, the end of the run.
        """
        path, count = self._outbox.path, self._outbox.count
        behind = [one for one in self.threads if one.is_alive() or not one.has_everything]
        left = {one.label: max(count - count_before(path, one.delivered), one.is_alive()) for one in behind}
        return {name: int(items) for name, items in left.items() if items}

    def losses(self) -> dict[str, int]:
        """Return the number of items that an exporter did not get, by reason."""
        return {
            "refused_by_exporter": sum(one.refused for one in self.by_name.values()),
            "outbox_retention": sum(one.progress.retained for one in self.threads),
            "outbox_damaged": sum(one.progress.damaged for one in self.threads),
        }

    def start(self) -> None:
        """Begin to deliver."""
        for one in self.threads:
            one.start()

    def close(self) -> None:
        """Shut down the exporters that have everything; stop the others, whose backlog stays in the outbox."""
        until = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < until and not all(one.has_everything or one.last_error for one in self.threads):
            time.sleep(_LOOK_S)
        complete = [one for one in self.threads if one.has_everything]
        for one in self.threads:
            if one in complete:
                one.close_when_done()
            else:
                one.stop()
        deadline = time.monotonic() + _CLOSE_WITHIN_S
        for one in complete:
            one.join(max(0.0, deadline - time.monotonic()))

    def _open_reader(self, name: str, options: Mapping[str, Any], run: RunInfo, openings: Openings) -> None:
        make = partial(plugins.find(READER_ENTRY_POINT_GROUP, name), run)
        reader = openings.attempt(partial(make, **options))
        if reader is None and name == "prometheus":
            # Another port at the same host; if the host itself is wrong, the default one (faults/test_start.py).
            for other in ({**options, "port": 0}, {"port": 0}):
                with contextlib.suppress(OSError):
                    reader = make(**other)
                    openings.warnings[-1] += f"; metrics are at {reader.address} instead"
                    break
        if reader is not None:
            self.readers[name] = reader
