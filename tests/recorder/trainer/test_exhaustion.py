"""The report when memory runs out."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest

from otel_rl import Run
from otel_rl.recorder.devices.exhaustion import is_out_of_memory
from otel_rl.recorder.journal.records import Happened, Record
from tests.real_parts import needs
from tests.recorder.trainer.reading import RecordsOf


def reports(records: list[Record]) -> list[Happened]:
    return [record for record in records if isinstance(record, Happened) and record.name == "rl.memory.exhausted"]


def exhausted() -> BaseException:
    torch = pytest.importorskip("torch")
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@needs("torch")
def test_it_names_the_phase_and_the_step_once(recording: Run, records_of: RecordsOf) -> None:
    """However many phases the exception passes through; it is the innermost one that is named."""
    error = exhausted()
    train_step = recording.phase("train_step")
    with pytest.raises(type(error)), recording.step(3), train_step, train_step.execute(), recording.phase("backward"):
        raise error
    (report,) = reports(records_of(recording))

    assert (report.step, report.attributes["rl.phase"]) == (3, "backward")
    assert report.attributes["error.type"] == "torch.OutOfMemoryError"
    assert "2.00 GiB" in str(report.attributes["exception.message"])


def test_the_exception_is_not_held(recording: Run) -> None:
    """Its frames hold the trainer's tensors, which a trainer that goes on with a smaller batch has to be rid of."""

    class Tensor:
        pass

    def fail() -> weakref.ref[Tensor]:
        held = Tensor()
        seen = weakref.ref(held)
        with contextlib.suppress(MemoryError), recording.step(0), recording.phase("train"):
            raise MemoryError
        return seen

    seen = fail()
    gc.collect()

    assert seen() is None


@pytest.mark.parametrize(
    ("error", "reported"), [(MemoryError(), ["reward"]), (ValueError("not enough memory of good answers"), [])]
)
def test_memory_of_the_host(recording: Run, records_of: RecordsOf, error: Exception, reported: list[str]) -> None:
    """`MemoryError` is reported as well; other errors are on their spans, and need no report."""
    with pytest.raises(type(error)), recording.step(0), recording.phase("reward"):
        raise error

    assert [report.attributes["rl.phase"] for report in reports(records_of(recording))] == reported


def test_it_names_no_step_that_was_refused(recording: Run, records_of: RecordsOf) -> None:
    """A step that is refused has no number that a record may have."""
    with contextlib.suppress(MemoryError), recording.step(-1):
        raise MemoryError

    assert [report.step for report in reports(records_of(recording))] == [None]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes"), True),
        (RuntimeError("shape mismatch"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_is_out_of_memory(error: BaseException, expected: bool) -> None:
    """CUDA's and XLA's errors are recognized by their texts if they have no class of their own."""
    assert is_out_of_memory(error) == expected
