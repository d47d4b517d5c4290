"""Hangs between processes: servers, children, ranks, and files that one process waits for and another does not make."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.verdicts.labels import Label, hang
from benchmarks.verdicts.pieces import endpoint, ranks, workers
from benchmarks.verdicts.pieces.recording import Recording, mark


def generate_at(port: int, trajectory: Any, prompt: int) -> float:
    """Ask the engine for a completion, without a time limit."""
    endpoint.asked(trajectory, port)
    return workers.answer(trajectory, prompt)


def _stop_server(pid: int, recording: Recording, number: int) -> None:
    if number == 6:
        os.kill(pid, signal.SIGSTOP)
        mark()


def stopped_server(recording: Recording) -> None:
    """Ask a server whose process is stopped: the kernel accepts the connection, and nothing answers."""
    port, pid = endpoint.start_process()
    engines = {"engines": [endpoint.metrics_url(port)], "interval": 2.0}
    workers.train(recording, partial(generate_at, port), update=partial(_stop_server, pid), hardware=engines)


def flush_metrics(dist: Any, pending: dict[str, float]) -> None:
    """Gather the metrics that this rank has logged."""
    import torch

    for value in pending.values():
        gathered = [torch.zeros(1), torch.zeros(1)]
        dist.all_gather(gathered, torch.tensor([value]))


def _log_on_one_rank(recording: Recording, rank: int, barrier: Any) -> None:
    dist = ranks.gloo()
    for number in range(20):
        with recording.step(number):
            with recording.phase("reward"):
                pending = {"accuracy": 0.5}
                if number == 8 and rank == 0:
                    mark()
                    pending["proof_accuracy"] = 1.0
                flush_metrics(dist, pending)
            with recording.phase("update_actor"):
                time.sleep(0.05)
                dist.barrier()
            recording.log({"loss": 0.1})


def pack_batch(number: int) -> None:
    """Read the rollouts of a step from a file server, and write the batch of each rank."""
    if number == 8:
        os.mkfifo("rollouts-8.bin")  # its server does not answer
        mark()
    else:
        Path(f"rollouts-{number}.bin").write_bytes(b"rollouts")
    rollouts = Path(f"rollouts-{number}.bin").read_bytes()
    for rank in range(2):
        part = Path(f"rank_{rank}-{number}.part")
        part.write_bytes(rollouts)
        part.rename(f"rank_{rank}-{number}.bin")


def wait_for_batch(rank: int, number: int) -> bytes:
    """Look for the batch of this rank until it is there."""
    batch = Path(f"rank_{rank}-{number}.bin")
    while not batch.exists():
        time.sleep(0.05)
    return batch.read_bytes()


def _train_from_files(recording: Recording, rank: int, barrier: Any) -> None:
    for number in range(20):
        with recording.step(number):
            with recording.phase("get_batch"):
                if rank == 0:
                    pack_batch(number)
                wait_for_batch(rank, number)
            with recording.phase("update_actor"):
                time.sleep(0.05)
                barrier.wait()
            recording.log({"loss": 0.1})


def _run_environment(has_calls: bool, variables: dict[str, str], tasks: Any, observations: Any) -> None:
    recording = Recording(has_calls).join(variables, "env")
    while (action := tasks.get()) is not None:
        with recording.phase("environment"):
            time.sleep(0.02)
        observations.put(bytes([action]) * 200_000)
    observations.put(bytes(400_000))  # the observation after the last action
    recording.finish()


def joined_before_drained(recording: Recording) -> None:
    """Wait for the end of environments, one of which has put an observation that nobody takes."""
    recording.begin()
    context = multiprocessing.get_context("spawn")
    tasks, observations = context.Queue(), context.Queue()
    given = (recording.has_calls, recording.environment(), tasks, observations)
    environment = context.Process(target=_run_environment, args=given, name="environment-0")
    environment.start()
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                tasks.put(number)
                observations.get()
            with recording.phase("update_actor"):
                time.sleep(0.03)
            recording.log({"loss": 0.1})
    with recording.phase("close_environments"):
        tasks.put(None)
        mark()
        environment.join()
    recording.finish()


def run_solution(code: str, stdin: int) -> str:
    """Run the code that the policy wrote, and return its output."""
    done = subprocess.run([sys.executable, "-c", code], stdin=stdin, capture_output=True, text=True, check=False)
    return done.stdout


def solution_reads_input(recording: Recording) -> None:
    """Wait for code that reads the input, which is a pipe that nobody writes to or closes."""
    recording.begin()
    stdin, _ = os.pipe()
    for number in range(20):
        code = "print(2 * int(input()))" if number == 8 else "print(4)"
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.05)
            with recording.phase("reward"):
                if number == 8:
                    mark()
                run_solution(code, stdin)
            recording.log({"reward": 0.5})


def _build_and_die(place: str) -> None:
    from torch.utils.file_baton import FileBaton

    FileBaton(place).try_acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def lock_of_a_killed_build(recording: Recording) -> None:
    """Wait for a build whose process was killed, and has left its lock."""
    from torch.utils.file_baton import FileBaton

    recording.begin()
    context = multiprocessing.get_context("spawn")
    build = context.Process(target=_build_and_die, args=("build.lock",))
    build.start()
    build.join()
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                time.sleep(0.05)
            with recording.phase("update_actor"):
                if number == 8:
                    mark()
                    FileBaton("build.lock").wait()
                time.sleep(0.02)
            recording.log({"loss": 0.1})


SCENARIOS = (
    hang(
        "stopped_server",
        "huggingface/trl#6973",
        stopped_server,
        Label(
            right=(r"127\.0\.0\.1:\d+|process \d+", r"stopped|SIGSTOP|not answer|stalls?\b|reads? nothing|not read"),
            place=(r"127\.0\.0\.1:\d+|generate",),
        ),
    ),
    hang(
        "metric_of_one_rank",
        "huggingface/trl#7310",
        partial(ranks.launch, rank=_log_on_one_rank),
        Label(
            right=(r"rank 0", r"flush_metrics|all_gather", r"rank 1", r"barrier|update_actor"),
            place=(r"flush_metrics|all_gather|barrier|update_actor",),
            wrong=(r"rank [01] (is stopped|died|spins)",),
        ),
    ),
    hang(
        "packer_at_a_stalled_file",
        "PrimeIntellect-ai/prime-rl#2142",
        partial(ranks.launch, rank=_train_from_files),
        Label(
            right=(r"rank 0", r"pack_batch|rollouts-8"),
            place=(r"wait_for_batch|get_batch",),
            wrong=(r"^(autopsy of [\d:]+: )?rank 1 (sleeps|spins|is stopped|died|is stuck)",),
        ),
    ),
    hang(
        "joined_before_drained",
        "Unity-Technologies/ml-agents#2600",
        joined_before_drained,
        Label(
            right=(
                r"env 0|environment-0|process \d+|child|worker",
                r"pipe|queue|feeder|flush",
                r"read|drain|full|take|put|writ|empt",
            ),
            place=(r"join|close_environments",),
        ),
    ),
    hang(
        "solution_reads_input",
        "cloudflare/sandbox-sdk#141",
        solution_reads_input,
        Label(
            right=(r"process \d+|child", r"stdin|standard input|input\b|reads?\b.{0,40}pipe|pipe.{0,40}\bread"),
            place=(r"process \d+|child|run_solution|reward",),
        ),
    ),
    hang(
        "lock_of_a_killed_build",
        "pytorch/pytorch#189245",
        lock_of_a_killed_build,
        Label(right=(r"build\.lock|lock file|baton",), place=(r"update_actor|sleeps",)),
    ),
)
