"""The calls of torch's device functions, as far as they can be tested without a device."""

from __future__ import annotations

import inspect

import pytest

from tests.real_parts import needs, part

torch = part("torch")
pytestmark = needs("torch")


@pytest.mark.parametrize(
    "name",
    [
        *("is_initialized", "current_device", "device_count", "current_stream", "is_current_stream_capturing"),
        *("get_device_properties", "memory_stats_as_nested_dict", "mem_get_info", "reset_peak_memory_stats"),
        *("memory_summary", "memory._record_memory_history", "memory._dump_snapshot", "Event"),
    ],
)
def test_torch_has_what_is_asked(name: str) -> None:
    """In the version that is installed."""
    found = torch.cuda
    for component in name.split("."):
        found = getattr(found, component)

    assert callable(found)


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (torch.cuda.memory_summary, {"device", "abbreviated"}),
        (torch.cuda.memory_stats_as_nested_dict, {"device"}),
        (torch.cuda.memory._record_memory_history, {"max_entries", "stacks"}),
        (torch.cuda.Event.record, {"stream"}),
        (torch.cuda.Event.elapsed_time, {"end_event"}),
    ],
)
def test_torch_takes_what_is_given(function: object, parameters: set[str]) -> None:
    """By these names."""
    given = inspect.signature(function).parameters  # type: ignore[arg-type]

    assert parameters <= set(given)


def test_the_class_of_the_exception() -> None:
    """Its name is what a report goes by."""
    assert torch.OutOfMemoryError.__name__ == "OutOfMemoryError"
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
