"""Values that lie on a device: the copies, with CPU tensors in its place and a queue that the test works off."""

from __future__ import annotations

from array import array

import pytest

from otel_rl.recorder.convert.refused_values import Unconvertible
from otel_rl.recorder.devices.values import Arrived, DeviceValues
from tests.real_parts import needs, part
from tests.recorder.devices.gpus import Queue

torch = part("torch")
pytestmark = needs("torch")


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def values(queue: Queue) -> DeviceValues:
    return DeviceValues(torch, queue.mark, queue.is_capturing, lambda device: 0, pinned=False)


def test_what_is_overwritten_later_arrives_as_it_was(values: DeviceValues, queue: Queue) -> None:
    """Each copy is in the device's queue before what the trainer does next."""
    loss = torch.tensor(1.5)
    norm = torch.tensor(2.5)
    for step in range(2):
        values.copy({"loss": loss, "norm": norm}, step, 10 + step, 1.0)
        loss.add_(1)
        norm.zero_()
    queue.work(1, marks=2)

    assert [(one.step, one.time, one.scalars) for one in values.arrived()] == [
        (0, 10, {"loss": 1.5, "norm": 2.5}),
        (1, 11, {"loss": 2.5, "norm": 0.0}),
    ]


def test_nothing_is_read_before_it_has_arrived(values: DeviceValues, queue: Queue) -> None:
    """In order, each when the device has passed its copy."""
    values.copy({"loss": torch.tensor(1.0)}, 0, 0, 1.0)
    values.copy({"loss": torch.tensor(2.0)}, 1, 0, 1.0)
    seen = [values.arrived()]
    queue.work(1)
    seen.append(values.arrived())

    assert [[one.step for one in some] for some in seen] == [[], [0]]
    assert values.waiting


def test_scalars_and_samples_of_several_types(values: DeviceValues, queue: Queue) -> None:
    """There is one copy for each type; integers stay integers, half precision is exact."""
    tensors = {
        "half": torch.tensor(0.5, dtype=torch.bfloat16),
        "whole": torch.tensor(2**53 + 1),
        "one": torch.ones(1, 1, requires_grad=True),
        "rewards": torch.tensor([1.0, 2.0, 3.0]),
        "again": torch.tensor(4.0),
    }
    tensors["one"] = tensors["one"].reshape(())
    values.copy(tensors, 4, 5, 0.5)
    queue.work(1, marks=3)

    assert values.arrived() == [
        Arrived(
            *(4, 5, 0.5),
            {"half": 0.5, "whole": 2**53 + 1, "one": 1.0, "again": 4.0},
            {"rewards": array("d", [1, 2, 3]).tobytes()},
        )
    ]


def test_tensors_of_inference(values: DeviceValues, queue: Queue) -> None:
    """Values that a rollout logs inside of inference mode, and training outside, use the same buffer."""
    with torch.inference_mode():
        values.copy({"a": torch.tensor(1.0), "b": torch.tensor(2.0)}, 0, 0, 1.0)
    values.copy({"a": torch.tensor(3.0), "b": torch.tensor(4.0)}, 1, 0, 1.0)
    queue.work(1, marks=2)

    assert [one.scalars for one in values.arrived()] == [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]


def test_a_graph_is_left_alone(values: DeviceValues, queue: Queue) -> None:
    """A copy would become a part of the graph that is captured."""
    queue.captures = True

    with pytest.raises(Unconvertible, match="captured"):
        values.copy({"loss": torch.tensor(1.0)}, 0, 0, 1.0)


def test_too_much_is_refused(values: DeviceValues) -> None:
    """Too many elements in one log, and too many copies pending on a device that hangs, are refused."""
    with pytest.raises(Unconvertible, match="65536 elements"):
        values.copy({"logits": torch.zeros(1 << 17)}, 0, 0, 1.0)
    for _ in range(1024):
        values.copy({"loss": torch.tensor(1.0)}, 0, 0, 1.0)
    with pytest.raises(Unconvertible, match="1024 copies"):
        values.copy({"loss": torch.tensor(1.0)}, 0, 0, 1.0)
