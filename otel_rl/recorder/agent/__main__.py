"""`__main__.py RUN_DIR PART NAME`: the supervisor of an agent, which a trainer starts.

The supervisor runs the agent in a child process and restarts an agent that died, even while the trainer hangs in C
code. It imports nothing of the package, so it takes 9 MiB; the trainer starts it by the path of this file.
"""

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

DONE, INCOMPLETE, CANNOT_START, CRASHED, NOT_NEEDED = range(5)
"""Exit codes of an agent: all was delivered; some was not; it cannot start; it failed; another one runs."""
_ENDS = ("done", "incomplete", "cannot start", "crashed", "not needed")
"""The ends in the order of their codes, as the agent reports them to this file, which it cannot import."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_MOST_DEATHS = 20
_STABLE_S = 60.0
_POLL_S = 0.1
_OF_TRAINERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
"""Signals that are for trainers: a batch system may send them to all processes of a job before its time limit."""


class Supervisor:
    """Runs the agent of the named part of a run directory, and restarts it when it dies."""

    def __init__(self, run_dir: Path, part: Path, name: str) -> None:
        self._run_dir, self._part, self._name = run_dir, part, name
        self._child = self._deaths = 0
        self._is_stopped = False

    def run(self) -> int:
        """Supervise until the agent ends as it should; return its exit code."""
        # First of all: the trainer's umask may be 0 (security/test_private_files.py).
        os.umask(0o077)  # also for what trackers write, until the agent knows the setting `share`
        for number in _OF_TRAINERS:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        lock_fd = _hold(self._part / "cursors")
        while True:
            began = time.monotonic()
            self._child = os.fork()
            if self._child == 0:
                # The child has a copy of the lock: it would look like a supervisor after its own was killed, and nobody
                # would start another one.
                if lock_fd >= 0:
                    os.close(lock_fd)
                _work(self._run_dir, self._part, self._name)
            # A signal that came before the fork has reached no child (faults/test_supervision.py).
            if self._is_stopped:
                os.kill(self._child, signal.SIGTERM)
            code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            self._child = 0
            # Otherwise the limit of deaths in a row would end an agent that dies once an hour.
            if time.monotonic() - began > _STABLE_S:
                self._deaths = 0
            # `CANNOT_START` after a death may be what the death left, such as a port or a full disk: this is tried
            # again.
            if code in (DONE, INCOMPLETE, NOT_NEEDED) or (code == CANNOT_START and not self._deaths):
                return code
            self._deaths += 1
            if not self._may_go_on(f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"):
                return CRASHED

    def _may_go_on(self, how: str) -> bool:
        """Wait before a restart of the agent; return whether to restart it."""
        manifests = (self._run_dir / "run.json", self._part / "run.json")
        if self._is_stopped or not any(path.exists() for path in manifests):  # removed, or moved away
            return False
        if self._deaths == _MOST_DEATHS:
            _say(f"the agent {how}, {self._deaths} times in a row; run `otel-rl agent {self._run_dir}` by hand")
            return False
        pause = min(_FIRST_PAUSE_S * 2 ** (self._deaths - 1), _LONGEST_PAUSE_S)
        _say(f"the agent {how}; it is started again in {pause:.1f} s ({self._deaths} in a row)")
        until = time.monotonic() + pause
        while not self._is_stopped and time.monotonic() < until:
            time.sleep(_POLL_S)
        return not self._is_stopped

    def _stop(self, *_: object) -> None:
        self._is_stopped = True
        if self._child:
            os.kill(self._child, signal.SIGTERM)


def _hold(directory: Path) -> int:
    """Lock a directory, so that others see that the run is supervised; -1 if another supervisor has it."""
    fd = -1
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def _say(text: str) -> None:
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)  # a path can forge lines of the log
    with contextlib.suppress(OSError, ValueError):  # the disk with the log may be full
        print(time.strftime("%Y-%m-%d %H:%M:%S"), "WARNING otel_rl.recorder.agent:", text, file=sys.stderr, flush=True)  # noqa: T201


def _work(run_dir: Path, part: Path, name: str) -> None:
    """Run the agent and exit; this does not return."""
    # Inherited by `fork`: until the agent has a handler of its own, `_stop` would take the signal and end nothing.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = CRASHED
    try:
        from otel_rl.recorder.agent.process import work
        from otel_rl.recorder.directory.directory import RunDirectory

        code = _ENDS.index(work(RunDirectory(run_dir, part, name)))
    except BaseException as error:
        _say(f"the agent cannot be imported: {type(error).__name__}: {error}")
    finally:
        os._exit(code)  # an exporter that hangs must not keep the process


if __name__ == "__main__":
    here = str(Path(__file__).parent)
    sys.path[:] = [path for path in sys.path if path != here]  # its modules must not be imported as top-level modules
    sys.exit(Supervisor(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]).run())
