"""The processes of the demo: one for each rank, as torchrun would start them, while this one watches the run.

`python -m otel_rl.demo.processes OPTIONS` is one of the ranks.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

import otel_rl
from otel_rl.demo.options import Options
from otel_rl.demo.watching import Watch
from otel_rl.recorder.errors.sinks import lines, one_line
from otel_rl.recorder.files import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT, NAME = "otel-rl-demo", "grpo-arithmetic"
DELIVERY_S = 30
"""How long `finish` may take to deliver the rows of a rank."""
EXIT_S = 40
"""How long the ranks may take to end after SIGTERM; they need up to `DELIVERY_S` to deliver."""
INTERRUPTED = 128 + signal.SIGINT
_INVALID = 2
_FINISH = b"finish\n"
_EVERY_S = 0.1


class RankProcesses:
    """The processes of all ranks. Their output is kept, and printed if one of them fails.

    Each waits for a line of its standard input before it finishes the run, so that the metrics stay up as long. If its
    standard input ends before that, this process is gone, and the rank ends too.
    """

    def __init__(self, options: Options, run_id: str) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the demo
        shared = os.environ | _shared_environment(options.ranks, run_id)
        self._processes = [
            programs.start_python(
                "otel_rl.demo.processes",
                msgspec.json.encode(options).decode(),
                environment=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                reads=programs.PIPE,
                output=self._printed,
                errors=self._printed,
            )
            for rank in range(options.ranks)
        ]

    def are_over(self) -> bool:
        """Return whether all ranks have ended, or one has failed."""
        codes = [process.poll() for process in self._processes]
        return all(code is not None for code in codes) or any(codes)

    def let_finish(self) -> None:
        """Let the ranks finish the run when they have trained."""
        for process in self._processes:
            if process.stdin is not None and not process.stdin.closed:
                with contextlib.suppress(OSError):  # the process has ended
                    process.stdin.write(_FINISH)
                    process.stdin.flush()

    def stop(self) -> None:
        """End the training."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()

    def end(self) -> int:
        """Wait until all ranks have ended, after the failure of one not for long; return the exit code."""
        self.let_finish()
        while not self.are_over():
            time.sleep(_EVERY_S)
        self.stop()
        deadline = time.monotonic() + EXIT_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except programs.TooLate:
                process.kill()
                process.wait()
        codes = [abs(process.returncode) for process in self._processes]
        return max((code for code in codes if code != INTERRUPTED), default=INTERRUPTED)

    def printed(self) -> str:
        """Return what the ranks have printed."""
        self._printed.seek(0)
        return lines(self._printed.read().decode(errors="replace")).strip()


def perform(options: Options, *, hold: bool) -> int:
    """Run the demo; return the exit code. With `hold`, the metrics endpoint stays up until Ctrl-C.

    Raises:
        SettingsError: A setting is invalid.
    """
    run_id = uuid.uuid4().hex
    run_dir = Path(options.dir).absolute() / PROJECT / f"{NAME}-{run_id}"
    click.echo(f"GRPO on arithmetic, {options.ranks} rank{'s' if options.ranks > 1 else ''}: {run_dir}")
    ranks = RankProcesses(options, run_id)
    watch = Watch(run_dir, options.steps, ranks.are_over)
    is_interrupted = False
    try:
        if not hold:
            ranks.let_finish()
        watch.follow(until_last_row=hold)
        if hold and not ranks.are_over():
            _show_end(watch, run_dir)
            _hold(ranks)
        code = ranks.end()
    except KeyboardInterrupt:
        is_interrupted = True
        ranks.stop()
        code = ranks.end()
    if code == _INVALID:
        raise otel_rl.SettingsError(ranks.printed())
    if code not in (0, INTERRUPTED):
        click.echo(ranks.printed(), err=True)
        return code
    if not hold or is_interrupted:
        _show_end(watch, run_dir)
    return INTERRUPTED if is_interrupted else code


def _hold(ranks: RankProcesses) -> None:
    """Wait for Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.echo("\nholding, so that the metrics stay up; Ctrl-C ends the run")
    try:
        while not ranks.are_over():
            time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        click.echo("ending the run")


def _show_end(watch: Watch, run_dir: Path) -> None:
    """Print the last screen, and where everything is."""
    watch.print_screen()
    for name, place in _places(run_dir, watch.metrics()):
        click.echo(f"{name:14} {one_line(place)}")


def _places(run_dir: Path, metrics: str | None) -> Iterator[tuple[str, str]]:
    """Yield what shows the run, each with its command or address."""
    if not run_dir.exists():
        return
    shown = run_dir.relative_to(Path.cwd()) if run_dir.is_relative_to(Path.cwd()) else run_dir
    run = shlex.quote(str(shown))
    yield "look again", f"otel-rl top {run}"
    yield "in the browser", f"otel-rl ui {shlex.quote(str(shown.parent.parent))}"
    yield "report", f"otel-rl report {run} -o demo.html"
    for board in sorted({path.parent for path in shown.rglob("events.out.tfevents.*")}):
        yield "TensorBoard", f"tensorboard --logdir {shlex.quote(str(board))}"
    for offline in sorted(shown.rglob("offline-run-*/")):
        yield "W&B, offline", f"wandb sync {shlex.quote(str(offline))}"
    if metrics:
        yield "Prometheus", f"{metrics} while the run lasts; --hold keeps it up"


def _shared_environment(world_size: int, run_id: str) -> dict[str, str]:
    """Return the variables that all ranks share: the identity of the run, and where the ranks connect."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "OTEL_RL_RUN_ID": run_id,
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",  # gloo looks up the host's name, which need not resolve in a container
    }


def _start_recording(options: Options) -> otel_rl.Run:
    """Open the run, as every rank does; rank and world size come from the environment."""
    offline = {"wandb": {"mode": os.environ.get("WANDB_MODE", "offline")}}
    return otel_rl.init(
        project=PROJECT,
        name=NAME,
        config=options.config(),
        exporters=[offline if name == "wandb" else name for name in options.exporters],
        dir=options.dir,
        content=True,  # sums and differences: nothing in them is private
    )


def main(options: Options) -> int:
    """Run the demo as one of the ranks; SIGTERM stops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the one that watches decides
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises, so that `finally` still finishes the run
    try:
        run = _start_recording(options)
    except otel_rl.SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return _INVALID
    may_finish = threading.Event()
    threading.Thread(target=_listen, args=(may_finish,), daemon=True).start()
    try:
        _train(run, options)
        may_finish.wait()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        delivered = run.finish(timeout=DELIVERY_S)
    return 0 if delivered else 1


def _listen(may_finish: threading.Event) -> None:
    if sys.stdin.readline():
        may_finish.set()
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def _train(run: otel_rl.Run, options: Options) -> None:
    from otel_rl.demo import ranks  # the process that watches needs no torch
    from otel_rl.demo.grpo import train

    try:
        train(run, options, ranks.join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
    finally:
        ranks.leave()


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Options)))
