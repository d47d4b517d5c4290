"""Samples of weights: the same few elements of each tensor in every process, whichever part of the tensor it holds.

A hash of the name and of the shape of the whole tensor chooses the elements, so the trainer and the engines choose the
same ones. Nothing here waits for a device, communicates, or keeps a tensor.
"""

from __future__ import annotations

import math
import re
import sys
from array import array
from contextlib import nullcontext
from heapq import heapify, heappushpop
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from otel_rl.recorder.convert.refused_values import Unconvertible
from otel_rl.recorder.errors.texts import name_of, text_of
from otel_rl.recorder.journal.records import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    View = tuple[str, Any]
    """The name of a tensor, and a 1-D view of some of its elements."""

ELEMENTS = 4
"""Elements of each tensor that are compared."""
MOST_TENSORS = 2000
"""Tensors of one call that are sampled; of more, those whose hashes are the lowest, which are the same everywhere."""
_AT_ONCE = 256 << 20
"""Bytes of tensors from which on their elements are copied; a generator that gathers each of them frees it then."""
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.|^module\.")
"""Parts of names that come from `torch.compile`, FSDP, activation checkpointing and DDP."""


class _Plan(NamedTuple):
    """Where the elements of a tensor are in this process: from its start in memory, in elements."""

    name: str
    layout: tuple[object, ...]  # for which it holds
    place: tuple[Any, ...]
    dtype: str
    elements: int
    held: int
    offsets: tuple[int, ...]
    step: int  # the distance between them; 0 if it is not the same for all
    is_read_later: bool  # together with others, since it is a tensor of torch
    bytes: int


def chosen(name: str, shape: Sequence[int]) -> tuple[int, list[int]]:
    """Return the number that identifies the elements of a tensor, and their places in its contiguous order."""
    size = math.prod(shape)
    number = crc32(f"{name} {tuple(shape)}".encode("utf-8", "surrogatepass"))
    if size <= ELEMENTS:
        return number, list(range(size))
    step = size // ELEMENTS - number % max(1, size // (4 * ELEMENTS))
    first = (number >> 7) % (size - (ELEMENTS - 1) * step)
    return number, [first + n * step for n in range(ELEMENTS)]


def held(
    places: Iterable[int], whole: Sequence[int], first: Sequence[int], shape: Sequence[int], strides: Sequence[int]
) -> tuple[int, tuple[int, ...]]:
    """Return which elements a part of a tensor has, as bits, and where it has them.

    Args:
        places: The elements, in the contiguous order of the whole tensor.
        whole: The shape of the whole tensor.
        first: The index of the first element of the part in the whole tensor.
        shape: The shape of the part.
        strides: The strides of the part, in elements.
    """
    bits, offsets = 0, []
    for n, place in enumerate(places):
        rest, offset = place, 0
        for size, begin, start, stride in zip(*map(reversed, (whole, first, shape, strides)), strict=True):
            rest, index = divmod(rest, size)
            if not begin <= index < begin + start:
                break
            offset += (index - begin) * stride
        else:
            bits |= 1 << n
            offsets.append(offset)
    return bits, tuple(offsets)


class Sampler:
    """Samples the weights of a process; it remembers where the elements of each tensor are.

    Args:
        refuse: Counts a tensor that cannot be sampled, with a reason and a message.
    """

    def __init__(self, refuse: Callable[[str, str], None]) -> None:
        self._refuse = refuse
        self._plans: dict[object, _Plan] = {}

    def sample(self, tensors: object, on_device: Callable[[list[View]], None]) -> dict[str, Sample]:
        """Return the samples by the names of the tensors; those of tensors on a device have no values yet.

        Args:
            tensors: As in `Run.weights`.
            on_device: Gets the views of tensors on a device.
        """
        samples: dict[str, Sample] = {}
        lowest: list[tuple[int, str]] = []
        waiting: list[tuple[_Plan, Any]] = []
        size = 0
        torch = sys.modules.get("torch")
        plain = (torch.Tensor, torch.nn.Parameter) if torch is not None else ()
        for item in _items(tensors):
            try:
                name, value, *part = item
                if type(value) in plain:
                    layout: tuple[object, ...] = value.shape, value.stride(), value.dtype, value.device
                else:
                    value, part = _local(value, part)
                    layout = value.shape, _strides(value), value.dtype, getattr(value, "device", None)
                place = tuple(map(tuple, part)) if part else ()
                plan = self._plans.get(name)
                if plan is None or plan.layout != layout or plan.place != place:
                    plan = self._plans[name] = _plan(_clean_name(name), value, layout, place)
                if not plan.offsets or (len(samples) >= MOST_TENSORS and not _is_among(lowest, plan, samples)):
                    continue
                samples[plan.name] = sample = Sample(plan.dtype, plan.elements, plan.held)
                if not plan.is_read_later:
                    sample.values = array("d", [float(value.item(offset)) for offset in plan.offsets]).tobytes()
                    continue
                waiting.append((plan, value))
                size += plan.bytes
            except Exception as error:  # what a foreign object may raise is not known
                self._refuse("weights", f"weights: {_named(item)}: {text_of(error)}")
            if size > _AT_ONCE:
                self._read(waiting, samples, on_device)
                waiting, size = [], 0
        self._read(waiting, samples, on_device)
        return samples

    def _read(
        self, waiting: list[tuple[_Plan, Any]], samples: dict[str, Sample], on_device: Callable[[list[View]], None]
    ) -> None:
        """Read what is on the host, which takes less time one by one than gathered, and pass on what is on a device."""
        named_views: list[View] = []
        torch: Any = sys.modules["torch"] if waiting else None
        try:
            with nullcontext() if torch is None else torch.inference_mode():
                for plan, tensor in waiting:
                    if not tensor.is_cpu:
                        is_raw = "float8" in plan.dtype  # such tensors cannot be put side by side
                        views = _views(plan, tensor.view(torch.uint8) if is_raw else tensor)
                        named_views += ((plan.name, view) for view in views)
                    elif (sample := samples.get(plan.name)) is not None:
                        numbers = [number for view in _views(plan, tensor) for number in view.tolist()]
                        sample.values = array("d", numbers).tobytes()
                if named_views:
                    on_device(named_views)
        except Exception as error:
            self._refuse("weights", f"weights: {text_of(error)}")
            for plan, _ in waiting:  # those that have no values yet, and will not get them
                samples.pop(plan.name, None)


def _views(plan: _Plan, tensor: Any) -> list[Any]:
    """Return 1-D views of the elements of a tensor, together one after the other."""
    start = tensor.storage_offset() + plan.offsets[0]
    if plan.step:
        return [tensor.as_strided((len(plan.offsets),), (plan.step,), start)]
    return [tensor.as_strided((1,), (1,), start + offset - plan.offsets[0]) for offset in plan.offsets]


def fill(samples: Mapping[str, Sample], sizes: Iterable[tuple[str, int]], together: Any) -> None:
    """Put elements that came from a device, of several tensors of one dtype, into the samples of these tensors."""
    raw, start = b"", 0
    for name, size in sizes:
        sample = samples.get(name)
        if sample is not None:
            if not raw:
                kind = getattr(sys.modules["torch"], sample.dtype)
                doubles = (together if together.dtype is kind else together.view(kind)).double()
                raw = array("d", doubles.tolist()).tobytes()
            sample.values += raw[start : start + 8 * size]
        start += 8 * size


def _items(tensors: Any) -> Iterable[Any]:
    if isinstance(tensors, (str, bytes, bytearray)):  # which have an item for each character
        raise Unconvertible(f"a {type(tensors).__name__} is not tensors; pass model.named_parameters()")
    for method in ("named_parameters", "items"):  # a model, or a mapping
        if hasattr(tensors, method):
            return getattr(tensors, method)()  # type: ignore[no-any-return] # it may return anything
    return tensors  # type: ignore[no-any-return] # or be anything


def _named(item: Any) -> str:
    return text_of(item[0]) if isinstance(item, tuple) and item else f"a {type(item).__name__}, not a name and a tensor"


def _clean_name(given: object) -> str:
    if not isinstance(given, str):
        raise Unconvertible(f"its name is a {type(given).__name__}, not a text")
    return _WRAPPERS.sub("", name_of(given))


def _is_among(lowest: list[tuple[int, str]], plan: _Plan, samples: dict[str, Sample]) -> bool:
    """Return whether a tensor is among those with the lowest hashes; forget the one whose place it takes."""
    if not lowest:
        lowest += ((-sample.elements, name) for name, sample in samples.items())
        heapify(lowest)
    entry = -plan.elements, plan.name
    left_out = heappushpop(lowest, entry)
    samples.pop(left_out[1], None)
    return left_out != entry


def _local(value: Any, part: list[Any]) -> tuple[Any, list[Any]]:
    """Return what of a tensor is in this process, with the shape of the whole and the index at which it begins.

    Raises:
        Unconvertible: It is not a dense tensor, or its parts are not known.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        if hasattr(value, "placements"):
            value, part = _of_mesh(value)
        kind = type(value)
        value = value.data  # of a subclass of a parameter too, as vLLM has
        if type(value) is not torch.Tensor:
            raise Unconvertible(f"a {kind.__name__} whose elements cannot be read")
    elif type(value).__module__.startswith("jax") and all(device.platform == "cpu" for device in value.devices()):
        value = numpy.asarray(value)  # type: ignore[union-attr] # JAX imports it
    elif numpy is None or not isinstance(value, numpy.ndarray):
        raise Unconvertible(f"a {type(value).__name__}, not a tensor on the host or of torch")
    return value, part


def _strides(local: Any) -> tuple[int, ...]:
    """Return the distances between neighbors in elements: in memory, or, for NumPy's `item`, in contiguous order."""
    if hasattr(local, "stride"):
        return tuple(local.stride())
    return tuple(math.prod(local.shape[n + 1 :]) for n in range(local.ndim))


def _of_mesh(value: Any) -> tuple[Any, list[Any]]:
    """Return the local tensor of a DTensor, the shape of the whole, and the index at which it begins.

    Raises:
        Unconvertible: It is placed in another way than as a shard or a replica.
    """
    where = value.device_mesh.get_coordinate()
    sizes, first = list(value.shape), [0] * value.ndim
    for rank, ranks, placement in zip(where or (), value.device_mesh.shape, value.placements, strict=True):
        kind = type(placement).__name__
        if kind == "Shard":
            chunk = -(-sizes[placement.dim] // ranks)
            begin = min(rank * chunk, sizes[placement.dim])
            first[placement.dim] += begin
            sizes[placement.dim] = min(chunk, sizes[placement.dim] - begin)
        elif kind != "Replicate":
            raise Unconvertible(f"a DTensor with the placement {placement}, whose parts are unknown")
    local = value._local_tensor
    if tuple(sizes) != tuple(local.shape):
        raise Unconvertible(f"a DTensor whose part has the shape {tuple(local.shape)}, not {tuple(sizes)}")
    return local, [value.shape, first]


def _plan(name: str, local: Any, layout: tuple[object, ...], place: tuple[Any, ...]) -> _Plan:
    shape = tuple(local.shape)
    whole, first = place or (shape, (0,) * len(shape))
    number, places = chosen(name, whole)
    dtype, is_torch = str(local.dtype).removeprefix("torch."), hasattr(local, "as_strided")
    if is_torch and (local.is_meta or str(local.layout) != "torch.strided"):
        raise Unconvertible(f"a tensor on {local.device} with the layout {local.layout}, whose elements cannot be read")
    if "float" not in dtype:  # counters and masks; packed integers are not the weights
        places = []
    bits, offsets = held(places, whole, first, shape, _strides(local))
    steps = {after - before for before, after in pairwise(offsets)}
    step = steps.pop() if len(steps) == 1 else int(len(offsets) == 1)
    return _Plan(name, layout, place, dtype, number, bits, offsets, max(step, 0), is_torch, local.nbytes)
