"""How a process ended, in words: one sentence for each way."""

from __future__ import annotations

import pytest

from otel_rl.export import DeathCause, Outcome
from otel_rl.recorder.facts.processes import cause_of, ended_badly, how_it_ended


@pytest.mark.parametrize(
    ("outcome", "error", "cause", "words"),
    [
        ("finished", "", "", "has ended well"),
        ("finished", "", "stopped", "was stopped as the run ended"),
        ("failed", "ValueError: no data\nmore", "", "failed with ValueError: no data"),
        ("failed", "", "", "failed"),
        ("failed", "torch.OutOfMemoryError: CUDA out of memory", "", "ran out of memory"),
        ("cancelled", "SIGTERM: Terminated", "", "was cancelled by SIGTERM"),
        (
            "cancelled",
            "SIGTERM: Slurm job 7 reached its time limit",
            "",
            "was cancelled by SIGTERM: Slurm job 7 reached its time limit",
        ),
        ("cancelled", "lost", "slurm_time_limit", "was ended by Slurm at the time limit of the job"),
        ("crashed", "SIGSEGV: Segmentation fault", "", "crashed with SIGSEGV: Segmentation fault"),
        ("lost", "lost (SIGKILL)", "signal", "was killed by SIGKILL"),
        ("lost", "lost", "oom_kill", "was killed by the kernel for lack of host memory"),
        ("lost", "lost", "", "was killed or disappeared"),
    ],
)
def test_how_it_ended(outcome: Outcome, error: str, cause: DeathCause, words: str) -> None:
    """The verb names the signal, the cause, or the first line of the exception."""
    assert how_it_ended(outcome, error, cause) == words


def test_a_long_error_is_cut() -> None:
    """A sentence has room for 200 characters of it."""
    assert how_it_ended("failed", "x" * 999) == f"failed with {'x' * 200}"


def test_a_cause_of_a_later_version_is_unknown() -> None:
    """It is not shown as a word that nobody knows."""
    assert [cause_of(text) for text in ("oom_kill", "cosmic rays", None)] == ["oom_kill", "", ""]


def test_which_ends_are_bad() -> None:
    """A process that runs has not ended badly."""
    outcomes: tuple[Outcome | None, ...] = (None, "finished", "failed", "cancelled", "crashed", "lost")
    assert [ended_badly(outcome) for outcome in outcomes] == [False, False, True, True, True, True]
