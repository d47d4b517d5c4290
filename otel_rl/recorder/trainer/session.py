"""The recording of one process: its run directory, its journal, and the agent that reads it."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.delivery.left_behind import deliver_with, left_behind
from otel_rl.recorder.devices.host_memory import PAGE_SIZE
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.directory.attempts import join, this_start
from otel_rl.recorder.directory.births import Birth
from otel_rl.recorder.directory.secret_options import without_secrets
from otel_rl.recorder.errors import UnavailableError, UnwritableError
from otel_rl.recorder.errors.guard import Guard
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.signals import SignalFiles
from otel_rl.recorder.journal.claim import claim_journal, claim_role, label, mark_delivered
from otel_rl.recorder.journal.ending import leave_end
from otel_rl.recorder.journal.records import Started
from otel_rl.recorder.journal.segments import START
from otel_rl.recorder.journal.writer import Writer
from otel_rl.recorder.settings import otel_environment
from otel_rl.recorder.settings.joining import WORKER
from otel_rl.recorder.trainer import early_output
from otel_rl.recorder.trainer.manifest import manifest_of, own_exporters, warn_of_unserved, with_a_head
from otel_rl.recorder.trainer.questions import Questions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_rl.export import Exporter
    from otel_rl.recorder.delivery.relay import Relay
    from otel_rl.recorder.directory.agent_start import AgentStatus
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory
    from otel_rl.recorder.journal.records import Finished
    from otel_rl.recorder.journal.segments import Position
    from otel_rl.recorder.settings.settings import Settings


logger = log_of("otel_rl")
_warnings = Occasional(logger)
_CHECK_S = 1.0
NEVER = sys.maxsize
"""The time of the next check if there is none; an integer, as it is compared with each record."""
_FIRST_PAUSE_S = 0.5
"""Seconds before `finish` starts an agent again that died; twice as many before the next one."""
_LONGEST_PAUSE_S = 300.0
"""Seconds between two starts of agents that die at once; a start takes a millisecond."""

_REPLACED = "was removed, and another run is there now; what this one records stays"


class Session:
    """The recording of a process, from `init` to `finish`; `least` is the lowest number of an attempt that begins."""

    def __init__(self, settings: Settings, least: int = 0) -> None:
        self.settings = settings = with_a_head(settings)
        self.check_at = 0  # time of the next `check`, in nanoseconds of the monotonic clock
        self._pid = os.getpid()
        self._restart_at, self._restart_pause = 0.0, _CHECK_S
        self._without_agent = ""  # why no agent can be started
        self._signals, self._questions = SignalFiles(), Questions()
        with otel_environment.only_valid(os.environ):  # exporters import the SDK
            manifest, own = manifest_of(settings), own_exporters(settings)
        self._unserved = warn_of_unserved(settings, own) if settings.head and not manifest.receives else ""
        if self._unserved:
            own = {}
        self.directory: RunDirectory = directories.create(settings, sends=bool(settings.head) and not manifest.receives)
        self._info = manifest.run(self.directory)
        self._birth = Birth(self.directory.path, self.directory.local)
        try:
            place, start = self.directory, this_start(settings)
            decide = partial(join, place, start, least)
            noted = start.noted(place.host)
            if settings.role:  # a number that is taken may be inherited: the next one that no other rank's child has
                first, stride = settings.rank, settings.world_size
                attempts = place.attempts if stride > 1 else None  # otherwise the number is not given
                self._claim, rank = claim_role(
                    place.journals, settings.role, decide, first=first, stride=stride, attempts=attempts, entry=noted
                )
                self.settings = settings = msgspec.structs.replace(settings, rank=rank)
            else:
                self._claim = claim_journal(place.journals, start.who, place.attempts, entry=noted, decide=decide)
        except OSError as error:
            raise directories.unwritable(settings.dir, self.directory.journals, error) from error
        try:
            self._open(manifest, own)
        except BaseException as error:  # also after Ctrl-C, a process without a run must not hold the journal
            self.give_up()
            if isinstance(error, OSError):
                raise directories.unwritable(settings.dir, self._claim.path, error) from error
            raise

    def _open(self, manifest: Manifest, own: Mapping[str, Callable[..., Exporter]]) -> None:
        settings = self.settings
        public, self._secrets = without_secrets(manifest)
        self._manifest = msgspec.json.format(msgspec.json.encode(public))
        sends = settings.head and not manifest.receives
        self._manifest_place = self.directory.own_manifest if sends else self.directory.manifest
        self.label = label(settings.role, settings.rank)  # this process in file names
        self.attempt = self._claim.attempt
        if settings.agent == "off" or not agent_start.agent_is_alive(self.directory):
            write_atomically(self._manifest_place, self._manifest)
        self.journal = Writer(self._claim.path, limit_bytes=settings.journal_limit)
        # Before the agent starts: batch systems also end a trainer that waits for a slow agent in `init`.
        self._signals.begin(self._claim.path)
        self._questions.begin(self._claim.path, self._signals.write_stacks)
        self._end = START
        self.journal.append(self._started())
        self.prometheus = self._begin_agent()
        self._relay = self._open_relay(own)
        if settings.agent == "off" and settings.rank == 0 and not settings.role:  # otherwise the agent reports it
            for warning in left_behind(self.directory, os.environ):
                logger.warning("%s", warning)

    def _started(self) -> Started:
        return Started(
            run_id=self.settings.id,
            attempt=self.attempt,
            rank=self.settings.rank,
            world_size=self.settings.world_size,
            local_world_size=self.settings.local_world_size,
            role=self.settings.role,
            pid=os.getpid(),
            host=socket.gethostname(),
            page_size=PAGE_SIZE,
            time=time.time_ns(),
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            outputs=early_output.places(),
        )

    def give_up(self) -> None:
        """Remove all traces of a run that did not begin."""
        self._questions.close()
        self._signals.close()
        # The entry in the shared directory outlives the journal, which would otherwise count as lost
        # (`journals_missing`).
        with suppress(OSError):
            mark_delivered(self.directory.attempts, [self._claim.path.name])
        shutil.rmtree(self._claim.path, ignore_errors=True)
        self._claim.release()

    def leave_to_parent(self) -> None:
        """Leave the signals alone: this is a forked child."""
        self._signals.close(in_child=True)

    def for_child(self) -> Session:
        """Begin the recording of a forked child, as a worker of the run.

        Raises:
            OSError: Its journal cannot be made.
            SettingsError: The machine does not allow it.
        """
        return Session(msgspec.structs.replace(self.settings, role=WORKER, rank=0, world_size=1))

    def check(self) -> None:
        """Check the journal and the agent: 50 µs, once a second, on the trainer's thread. It does not raise."""
        if os.getpid() != self._pid:
            self.check_at = NEVER  # a forked child, whose parent has the journal
            return
        now = time.monotonic()
        # Before the checks: on a hung or full disk, they would otherwise come back with each record.
        self.check_at = time.monotonic_ns() + int(_CHECK_S * 1e9)
        with Guard(_warn_of_check):
            self._keep_files()
            if self.settings.agent != "off" and now >= self._restart_at:
                self._restart_dead_agent(now)

    def _keep_files(self) -> None:
        """Recreate files that were removed or moved elsewhere, and open descriptors again that the trainer closed."""
        was_closed = self._claim.is_closed
        if not self._claim.is_in_place:
            if not was_closed or not self._claim.path.exists():
                self._remake()
            # Locked before it is written again: an agent that finds the journal free takes this process for dead
            # (faults/test_removed.py).
            self._claim.keep()
        # Behind that: their files are in the directory of the journal.
        if any((was_closed, self._signals.keep(), self._questions.keep())):
            _warnings.warn(
                "the program closed descriptors of otel-rl; it opens them again, and lacks a second of memory"
            )
        self.journal.check()

    def _remake(self) -> None:
        directories.remake(self.directory)
        if not self._manifest_place.exists():
            write_atomically(self._manifest_place, self._manifest)
        _warnings.warn(f"files of {self.directory.path} were removed or moved while it is recorded; they are recreated")

    def _restart_dead_agent(self, now: float) -> None:
        if agent_start.is_looked_after(self.directory):
            if now >= self._restart_at + self._restart_pause:
                self._restart_pause = _CHECK_S  # it lived long enough for a quick restart
            return
        self._restart_at = now + self._restart_pause
        fate = self._birth.fate()
        if fate == "replaced":
            _warnings.warn(f"{self.directory.path} {_REPLACED} in {self._claim.path}")
        if fate == "removed":
            self._remake()
        if fate == "replaced" or not self.directory.path.exists():
            return
        if agent_start.restart_agent(self.directory, self._secrets, show_output=self._shows_output):
            self._restart_pause = min(2 * self._restart_pause, _LONGEST_PAUSE_S)
            _warnings.warn(f"the agent has died and is restarted; see {self.directory.agent_log}")

    def write_end(self, end: Finished) -> bool:
        """Write the end of this process next to the journal, for the agent to read after the process has ended.

        Return whether that was possible.
        """
        return leave_end(self._claim.path, end)

    def close(self, *, at_exit: bool = False) -> None:
        """Close the journal, so that the agent knows that this process ended in order; a second call is harmless.

        Args:
            at_exit: If true, the journal stays locked until the process has ended and has an exit status.
        """
        self.check_at = NEVER
        if self._end == START:
            # Nobody checks after this: files that a cleaner has removed since the last second would stay away, and
            # with them the last records (faults/test_moved.py).
            with suppress(OSError):
                self._keep_files()
            self._end = self.journal.position
        self.journal.close()
        self._signals.close()
        self._questions.close()
        if at_exit:  # a free lock means a dead process, whose end the agent would read before its exit status
            self._claim.keep_until_exit()
        else:
            # Last: the agent takes a free journal for that of a process which changes its files no more.
            self._claim.release()

    def wait_until_delivered(self, timeout: float) -> bool:
        """Wait until all exporters have delivered everything; start a new agent if there is none.

        Return false if records were lost or the time is up. With `agent="off"`, wait only for an agent that somebody
        else started, such as `otel-rl watch`.
        """
        if self.settings.agent == "off" and not agent_start.agent_is_alive(self.directory):
            return False
        deadline = time.monotonic() + timeout
        end = self._wait(deadline)
        if self._relay is not None and not self._relay.finish(end, max(0.0, deadline - time.monotonic())):
            return False
        status = agent_start.read_status(self.directory)
        return end is not None and not self._unserved and not status.lost and not self._without_others(status)

    def _wait(self, deadline: float) -> Position | None:
        """Wait until everything is delivered; start an agent if there is none, and again if it dies meanwhile.

        An agent that ends by itself meanwhile has given up, so nothing more would come.
        """
        place, journal, pause = self.directory, self._claim.path.name, _FIRST_PAUSE_S
        was_there = agent_start.is_looked_after(place)
        while (end := agent_start.wait_until_delivered(place, journal, self._end, deadline)) is None:
            left, is_there = deadline - time.monotonic(), agent_start.is_looked_after(place)
            has_ended = was_there and agent_start.read_status(place).state == "ended"
            has_given_up = not is_there and (has_ended or self._birth.fate() == "replaced")
            # The time is up and the agent has died: one more is started, without a wait, to deliver the rest
            # (faults/test_supervision.py).
            if left <= 0 and not is_there and self.settings.agent != "off":
                agent_start.restart_agent(place, self._secrets, show_output=self._shows_output)
            if left <= 0 or has_given_up:
                return None
            if not is_there:
                if was_there:
                    time.sleep(min(pause, left))
                    pause *= 2
                self._bring_back(left)
            was_there = True
        return end

    def _bring_back(self, timeout: float) -> None:
        """Start the agent and wait until it is ready; ignore one that dies or takes too long, since others follow.

        Raises:
            SettingsError: It says why it cannot start.
            OSError: Files that were removed cannot be made again.
        """
        if self._birth.fate() == "removed":
            self._remake()
        try:
            self._ensure_agent(timeout)
        except UnavailableError:
            if agent_start.read_status(self.directory).state == "failed":
                raise

    def _without_others(self, status: AgentStatus) -> str:
        """Return why the rows lack the ranks of other machines; empty if they do not."""
        others = self.settings.world_size > max(1, self.settings.local_world_size)
        return status.unreachable if others else ""

    def missing(self) -> str:
        """Return the agent's report of lost and undelivered records; empty with `agent="off"`."""
        if self.settings.agent == "off":
            return self._without_agent
        if self._birth.fate() == "replaced":
            return f"{self.directory.path} {_REPLACED} in {self._claim.path}"
        is_at_work = agent_start.is_looked_after(self.directory)  # before the status, which it writes before it ends
        status = agent_start.read_status(self.directory)
        reasons = agent_start.lost(status)
        reasons += [f"{name}: {error}" for name, error in status.last_error.items()]
        reasons += [reason for reason in (self._unserved, self._without_others(status)) if reason]
        host, command = deliver_with(self.directory)
        if reasons and agent_start.wait_until_delivered(self.directory, self._claim.path.name, self._end, deadline=0):
            return "; ".join(reasons)
        if is_at_work:
            reasons = reasons or ["not everything was delivered in time, and the agent goes on"]
            return f"{'; '.join(reasons)}; if it ends before all is delivered, run on {host}: {command}"
        if status.state == "ended" and not status.waiting:
            return "; ".join(reasons)
        waiting = [f"{count} item(s) not delivered to {name}" for name, count in status.waiting.items()]
        reasons = reasons + waiting or ["not everything was delivered"]
        return f"no agent is left: {'; '.join(reasons)}; to deliver the rest, run on {host}: {command}"

    def _open_relay(self, own: Mapping[str, Callable[..., Exporter]]) -> Relay | None:
        if not own:
            return None
        from otel_rl.recorder.delivery.relay import Relay  # few runs need it

        return Relay(self._info, self.directory, own)

    def _begin_agent(self) -> str | None:
        """Start the agent; if the machine does not allow it, `check` tries again while the run is recorded."""
        try:
            return self._ensure_agent()
        except agent_start.NoAgentError as error:
            if self.settings.strict:
                raise
            self._without_agent = (
                f"{error}; to deliver the run, run with an installed otel-rl: {deliver_with(self.directory)[1]}"
            )
            self.settings = msgspec.structs.replace(self.settings, agent="off")
            logger.warning("%s", self._without_agent)
            return None
        except UnavailableError as error:
            if self.settings.strict or isinstance(error, UnwritableError):
                raise
            logger.warning("%s; the run is recorded into %s, and the start is retried", error, self._claim.path)
            return None

    def _ensure_agent(self, timeout: float = 60.0) -> str | None:
        if self.settings.agent == "off":
            return None
        shows, secrets = self._shows_output, self._secrets
        return agent_start.ensure_agent(self.directory, secrets, show_output=shows, timeout=timeout).prometheus

    @property
    def _shows_output(self) -> bool:
        printing = any(spec.name in ("console", "stdout") for spec in self.settings.exporters)
        return printing or otel_environment.prints(os.environ)


def _warn_of_check(error: Exception) -> None:
    _warnings.warn(f"the recording could not be checked: {type(error).__name__}: {error}")
