"""Out-of-memory reports."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from otel_rl import semconv
from otel_rl.recorder.errors.texts import text_of, type_of
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import make_directory

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.devices.accelerators import DeviceFramework

_LARGEST = 10
_LONGEST = 8192
_SIGNS = ("out of memory", "RESOURCE_EXHAUSTED")  # errors of CUDA and XLA that have no class of their own


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that the memory of a device or of the host is exhausted."""
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and any(sign in text_of(error) for sign in _SIGNS)


def describe(error: BaseException, devices: DeviceFramework | None, place: Path) -> dict[str, object]:
    """Return attributes of the event: the error, the allocator's summary, the largest tensors, the memory history.

    If a history is kept, it is written to `place`, with a suffix.
    """
    attributes: dict[str, object] = {
        semconv.ERROR_TYPE: type_of(error),
        semconv.EXCEPTION_MESSAGE: text_of(error)[:_LONGEST],
    }
    summary = getattr(devices, "summary", None)
    if devices is None or summary is None:
        return attributes
    memory = devices.memory()
    if memory:
        fullest = max(memory, key=lambda device: device.reserved)
        attributes[semconv.MEMORY_SUMMARY] = summary(fullest.index)[:_LONGEST]
    attributes[semconv.MEMORY_LARGEST] = _largest_tensors()
    if getattr(devices, "keeps_history", False):
        make_directory(place.parent)
        path = place.with_name(f"{place.name}.pickle")
        write_atomically(path, b"")  # torch keeps the mode of a file that exists
        devices.dump_history(str(path))  # type: ignore[attr-defined] # whoever keeps a history can write it
        attributes[semconv.MEMORY_SNAPSHOT_FILE] = str(path)
    return attributes


def _largest_tensors() -> list[str]:
    """Return size, dtype and shape of the largest device tensors that Python references."""
    tensors: dict[int, tuple[int, str]] = {}
    for held in gc.get_objects():
        kind: Any = type(held)
        if any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__) and held.is_cuda:
            size = held.untyped_storage().nbytes()
            tensors[held.data_ptr()] = (size, f"{size} bytes: {held.dtype} {tuple(held.shape)}")
    return [text for _, text in sorted(tensors.values(), reverse=True)[:_LARGEST]]
