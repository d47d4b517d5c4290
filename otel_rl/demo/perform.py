"""The demo as rank 0: record, train, show, and tell where everything is."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from otel_rl.demo import processes, ranks, summary, worker
from otel_rl.demo.recording import Recording
from otel_rl.demo.screen import Screen

if TYPE_CHECKING:
    import subprocess

    from rich.console import Console

    import otel_rl
    from otel_rl.demo.options import Options

LAST_ROW_S = 12  # a row leaves when the next step begins; while the run is held, the last one waits for a deadline


def perform(options: Options, console: Console, *, hold: bool) -> int:
    """The whole demo; the exit code."""
    shared = processes.launch_environment(options.ranks)
    with processes.environment({**shared, **processes.rank_environment(0)}):
        run = worker.start_recording(options)
        others = processes.start_others(options, shared)
        recording = Recording(run.dir / "rows.jsonl")
        title = f"GRPO on arithmetic, {options.ranks} rank{'s' if options.ranks > 1 else ''}"
        try:
            with Screen(console, recording, steps=options.steps, title=title):
                complete = train_all(run, options, others)
                held = hold and complete
                if held:
                    wait_for_rows(recording, options.steps)
                else:
                    run.finish(timeout=worker.DELIVERY_S)
            summary.show(console, recording, run, ranks=options.ranks, held=held)
            if held:
                hold_on(console)
        finally:
            delivered = run.finish(timeout=worker.DELIVERY_S)
            processes.wait_for(others)
    if not complete:
        return worker.INTERRUPTED
    if not delivered:
        console.print(f"[red]not everything was delivered in {worker.DELIVERY_S} s; what is left is in {run.dir}")
    return 0 if delivered else 1


def train_all(run: otel_rl.Run, options: Options, others: list[subprocess.Popen[bytes]]) -> bool:
    """Train on all ranks; whether it went to the end rather than to a Ctrl-C."""
    try:
        worker.train_here(run, options)
    except BaseException as error:
        for process in others:
            process.terminate()
        if isinstance(error, KeyboardInterrupt):
            return False
        raise
    finally:
        ranks.leave()
    return True


def wait_for_rows(recording: Recording, steps: int) -> None:
    """Give the last row a moment; the display reads it."""
    deadline = time.monotonic() + LAST_ROW_S
    while len(recording.rows) < steps and time.monotonic() < deadline:
        time.sleep(0.1)


def hold_on(console: Console) -> None:
    """Keep the process until Ctrl-C, or until it is told to end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console.print("\nholding, so that the metrics stay up; Ctrl-C ends the run")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        console.print("ending the run")
