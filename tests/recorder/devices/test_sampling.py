"""Samples of weights: the same elements everywhere, whatever holds them."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.devices import sampling
from otel_rl.recorder.devices.sampling import Sampler, chosen, held
from otel_rl.recorder.devices.values import DeviceValues
from otel_rl.recorder.journal.records import Fingerprint
from otel_rl.testing import capture
from tests.processes import run_python
from tests.real_parts import needs, part
from tests.recorder.devices.gpus import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.recorder.journal.records import Sample

torch = part("torch")
pytestmark = needs("torch")
W = torch.arange(24.0).reshape(4, 6) if torch else None


def sampled(tensors: Any, refused: list[str] | None = None) -> dict[str, list[float]]:
    """Return the values by name; nothing is refused unless the test asks for it."""
    said: list[str] = []

    def on_device(_: object) -> None:
        raise AssertionError

    found = Sampler(lambda _, text: said.append(text)).sample(tensors, on_device)
    if refused is None:
        assert said == []
    else:
        refused += said
    return {name: values(sample) for name, sample in found.items()}


def values(sample: Sample) -> list[float]:
    return list(array("d", sample.values))


@given(st.text(max_size=20), st.lists(st.integers(1, 40), max_size=4))
def test_elements_are_spread_over_a_tensor(name: str, shape: list[int]) -> None:
    """They are different ones, inside of it, in order; of a small tensor, all."""
    _, places = chosen(name, shape)

    assert places == sorted(set(places))
    assert len(places) == min(4, math.prod(shape))
    assert 0 <= places[0] <= places[-1] < math.prod(shape)


@given(st.data())
def test_parts_have_all_elements_together(data: st.DataObject) -> None:
    """However a tensor is cut along one dimension, each element is in one part, at the right place."""
    shape = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    dim = data.draw(st.integers(0, len(shape) - 1))
    cut = data.draw(st.integers(0, shape[dim]))
    whole = np.arange(math.prod(shape)).reshape(shape)
    _, places = chosen("w", shape)
    found: dict[int, int] = {}
    for begin, end in ((0, cut), (cut, shape[dim])):
        local = whole[(slice(None),) * dim + (slice(begin, end),)]
        first = [begin if one == dim else 0 for one in range(len(shape))]
        strides = [one // whole.itemsize for one in local.strides]
        bits, offsets = held(places, shape, first, local.shape, strides)
        memory = whole.reshape(-1)
        start = begin * whole.strides[dim] // whole.itemsize
        indices = [n for n in range(4) if bits >> n & 1]
        found |= {n: int(memory[start + offset]) for n, offset in zip(indices, offsets, strict=True)}

    assert found == dict(enumerate(places))


def test_one_tensor_in_many_forms() -> None:
    """A parameter, a view, a transposed copy, NumPy, JAX, and a subclass of a parameter, as vLLM has."""
    jax = pytest.importorskip("jax.numpy")

    class Own(torch.nn.Parameter):
        pass

    forms = {
        "parameter": torch.nn.Parameter(W.clone()),
        "view": torch.arange(-5.0, 24.0)[5:].reshape(4, 6),
        "transposed": W.t().contiguous().t(),
        "numpy": W.numpy(),
        "fortran": np.asfortranarray(W.numpy()),
        "jax": jax.asarray(W.numpy()),
        "own": Own(W.clone()),
        "bfloat16": W.bfloat16(),
        "float8": W.to(torch.float8_e4m3fn).float(),
    }
    found = {form: sampled({"w": tensor})["w"] for form, tensor in forms.items()}
    rounded = found.pop("float8")

    expected = [float(place) for place in chosen("w", (4, 6))[1]]
    assert {form: one for form, one in found.items() if one != expected} == {}
    assert sampled({"w": W.to(torch.float8_e4m3fn)})["w"] == rounded


def test_a_model_a_mapping_and_a_generator() -> None:
    """All of them are read; the generator may free each tensor behind it."""
    layer = torch.nn.Linear(3, 2)
    of_model = sampled(layer)

    assert set(of_model) == {"weight", "bias"}
    assert of_model == sampled(layer.state_dict()) == sampled(layer.named_parameters())


def test_gathered_tensors_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that gathers one tensor after the other holds few at a time, and each value is that of its time."""
    monkeypatch.setattr(sampling, "_AT_ONCE", 100)
    buffer = torch.empty(4, 6)

    def gathered() -> Iterator[tuple[str, Any]]:
        for n in range(5):
            buffer.fill_(n)
            yield f"w{n}", buffer

    monkeypatch.setattr(sampling, "_AT_ONCE", 1)

    assert sampled(gathered()) == {f"w{n}": [float(n)] * 4 for n in range(5)}


def test_of_many_tensors_those_with_the_lowest_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order, so that both sides sample the same ones."""
    monkeypatch.setattr(sampling, "MOST_TENSORS", 20)
    tensors = [(f"w{n}", W) for n in range(100)]
    lowest = sorted((chosen(name, (4, 6))[0], name) for name, _ in tensors)[:20]

    assert set(sampled(tensors)) == set(sampled(tensors[::-1])) == {name for _, name in lowest}


def test_what_cannot_be_sampled() -> None:
    """Each is refused by itself, and its neighbors are sampled; tensors of integers are left out."""
    wrong = {
        "meta": torch.empty(3, device="meta"),
        "sparse": W.to_sparse(),
        "text": "x",
        "none": None,
        "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "count": torch.tensor(5),
    }
    refused: list[str] = []

    assert sampled([*wrong.items(), (3, W), W, "name", ("w", W)], refused) == sampled({"w": W})
    assert len(refused) == len(wrong) - 1 + 3
    assert "weights: meta: a tensor on meta" in refused[0]


def test_a_tensor_on_a_device() -> None:
    """Its elements are copied behind the work of its stream, and recorded when they have arrived."""
    queue = Queue()
    values_ = DeviceValues(torch, queue.mark, queue.is_capturing, lambda _: 0, pinned=False)
    weights = {"a": W.clone(), "b": W.bfloat16(), "c": W.to(torch.float8_e5m2)}
    found = sampled(weights)
    samples = Sampler(lambda *_: None).sample(weights, lambda _: None)
    copies = []
    for name, tensor in weights.items():
        samples[name].values = b""
        alike: list[tuple[str, Any]] = []
        flat = tensor.reshape(-1)[torch.tensor(chosen(name, (4, 6))[1])]
        alike.append((name, flat.view(torch.uint8) if name == "c" else flat))
        copies += values_.copies(alike)
    values_.sample(Fingerprint(1, 2, "trainer", None, samples), copies)
    weights["a"].zero_()
    assert values_.arrived() == []
    queue.work(1, marks=3)
    (come,) = values_.arrived()

    assert come.fingerprint is not None
    assert {name: values(one) for name, one in come.fingerprint.tensors.items()} == found


def test_the_call_of_a_run() -> None:
    """A rank is a trainer, a process with a role an engine; wrong arguments are refused."""
    import otel_rl

    with capture() as captured:
        run = otel_rl.init(id="x", role="rollout")
        run.weights(3, {"w": W})
        run.weights(4, {"w": W}, side="trainer")
        run.weights(-1, {"w": W})
        run.weights(5, {"w": W}, side="other")
        run.weights(6, {})
        run.weights(7, None)
        found = [one for one in captured._records() if isinstance(one, Fingerprint)]

        assert [(one.version, one.side, values(one.tensors["w"])) for one in found] == [
            (3, "engine", sampled({"w": W})["w"]),
            (4, "trainer", sampled({"w": W})["w"]),
        ]
        assert run.refused == {"weights": 4}


MESH = """
import torch, torch.distributed as dist, sys
from array import array
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from otel_rl.recorder.devices.sampling import Sampler, chosen

def main(rank):
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    ways = {"a": [Shard(0), Replicate()], "b": [Shard(0), Shard(1)], "c": [Replicate(), Shard(1)]}
    ways["d"] = [Shard(1), Shard(1)]
    whole = torch.arange(35.0).reshape(5, 7)
    placed = {name: distribute_tensor(whole, mesh, way) for name, way in ways.items()}
    refused = []
    found = Sampler(lambda *said: refused.append(said)).sample(placed, None)
    told = {}
    for name, one in found.items():
        told[name] = dict(zip([n for n in range(4) if one.held >> n & 1], array("d", one.values)))
    everything = [None] * 4
    dist.all_gather_object(everything, (told, refused))
    if rank == 0:
        for name in ways:
            expected = dict(enumerate(map(float, chosen(name, (5, 7))[1])))
            of_ranks = [told.get(name, {}) for told, _ in everything]
            assert all(one.items() <= expected.items() for one in of_ranks), (name, of_ranks, expected)
            assert {k: v for one in of_ranks for k, v in one.items()} == expected, (name, of_ranks)
        print("refused", [said for _, said in everything])
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=4, start_method="fork")
"""


@pytest.mark.slow
def test_tensors_that_are_distributed(tmp_path: Path) -> None:
    """Four ranks have the elements of each DTensor together, each at its place, without communicating."""
    script = MESH.replace("sys.argv[1]", repr(str(tmp_path / "store")))

    assert run_python(script, tmp_path).splitlines()[-1] == "refused [[], [], [], []]"
