"""The calls of torch's device functions, as far as they can be tested without a device."""

from __future__ import annotations

import inspect
import operator

import pytest

from tests.real_parts import needs, part

torch = part("torch")
pytestmark = needs("torch")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((name, set()) for name in ("is_initialized", "current_device", "device_count", "current_stream")),
        *((name, set()) for name in ("is_current_stream_capturing", "get_device_properties", "mem_get_info")),
        *((name, set()) for name in ("reset_peak_memory_stats", "memory._dump_snapshot", "Event")),
        ("memory_summary", {"device", "abbreviated"}),
        ("memory_stats_as_nested_dict", {"device"}),
        ("memory._record_memory_history", {"max_entries", "stacks"}),
        ("Event.record", {"stream"}),
        ("Event.elapsed_time", {"end_event"}),
    ],
)
def test_torch_has_what_is_asked(name: str, parameters: set[str]) -> None:
    """In the version that is installed, with parameters of these names."""
    found = operator.attrgetter(name)(torch.cuda)

    assert callable(found)
    assert not parameters or parameters <= set(inspect.signature(found).parameters)


def test_the_class_of_the_exception() -> None:
    """Its name is what a report goes by."""
    assert torch.OutOfMemoryError.__name__ == "OutOfMemoryError"
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
