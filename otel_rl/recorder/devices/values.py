"""Asynchronous copies of metric values from a device: one copy for each `log`, read after it has completed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.recorder.convert.refused_values import Unconvertible
from otel_rl.recorder.convert.values import to_number, to_samples
from otel_rl.recorder.devices import sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from otel_rl.recorder.devices.clock import DeviceEvent
    from otel_rl.recorder.journal.records import Fingerprint

_LARGEST = 1 << 16  # elements in one `log`
_MOST_PENDING = 1024


class Arrived(NamedTuple):
    """Values by name that were logged earlier and have arrived on the host."""

    step: int
    time: int  # of the call of `log`
    weight: float
    scalars: dict[str, int | float]
    samples: dict[str, bytes]  # observations as native doubles
    fingerprint: Fingerprint | None = None  # of weights, instead of values


class _Copy(NamedTuple):
    names: list[tuple[str, int, bool]]  # name, number of elements, whether they are observations
    host: Any
    passed: DeviceEvent


class _PendingValues(NamedTuple):
    step: int
    time: int
    weight: float
    copies: list[_Copy]
    fingerprint: Fingerprint | None = None


class DeviceValues:
    """A queue of asynchronous copies of device tensors.

    A copy goes to the same stream as the work that computes the tensor. Later changes of the tensor come after the
    copy, so the value that arrives is the one at the time of the call. Tensors of one dtype are first gathered into one
    tensor, so that there is one copy.

    Args:
        torch: The module.
        mark: Enqueues an event on a device.
        is_capturing: Returns whether a graph is being captured, of which a copy would become a part.
        stream_of: Returns the identity of a device's current stream.
        pinned: If true, host memory is page-locked; otherwise a copy would wait for the device.
    """

    def __init__(
        self,
        torch: Any,
        mark: Callable[[Any], DeviceEvent],
        is_capturing: Callable[[], bool],
        stream_of: Callable[[Any], int],
        *,
        pinned: bool = True,
    ) -> None:
        self._torch = torch
        self._mark = mark
        self._is_capturing = is_capturing
        self._stream_of = stream_of
        self._pinned = pinned
        self._side_by_side: dict[tuple[Any, ...], Any] = {}
        self._pending: deque[_PendingValues] = deque()

    def copy(self, tensors: Mapping[str, Any], step: int, time: int, weight: float) -> None:
        """Queue the copies of one `log`.

        Raises:
            Unconvertible: As in `copies`, or there are too many elements.
        """
        if sum(tensor.numel() for tensor in tensors.values()) > _LARGEST:
            raise Unconvertible(f"more than {_LARGEST} elements on a device in one log; log their statistics")
        self._pending.append(_PendingValues(step, time, weight, self.copies(tensors.items())))

    def copies(self, named: Iterable[tuple[str, Any]]) -> list[_Copy]:
        """Queue a copy for all tensors of one device and dtype.

        Raises:
            Unconvertible: A graph is being captured, or too many copies are pending.
        """
        if self._is_capturing():
            raise Unconvertible("a CUDA graph is being captured; log outside of it")
        if len(self._pending) >= _MOST_PENDING:
            raise Unconvertible(f"{_MOST_PENDING} copies from the device are already pending")
        alike: dict[tuple[Any, Any], list[tuple[str, Any]]] = {}
        for name, tensor in named:
            alike.setdefault((tensor.device, tensor.dtype), []).append((name, tensor))
        return [self._copy(group) for group in alike.values()]

    def sample(self, fingerprint: Fingerprint, copies: list[_Copy]) -> None:
        """Complete the samples of weights when their copies have arrived."""
        self._pending.append(_PendingValues(0, fingerprint.time, 1, copies, fingerprint))

    def arrived(self) -> list[Arrived]:
        """Return the values that have arrived since the last call, in the order of their `log` calls."""
        arrived: list[Arrived] = []
        while self._pending and all(copy.passed.query() for copy in self._pending[0].copies):
            try:
                arrived.append(_read(self._pending.popleft()))
            except IndexError:  # another thread was faster
                break
        return arrived

    @property
    def waiting(self) -> bool:
        """Whether copies are pending."""
        return bool(self._pending)

    def _copy(self, named: list[tuple[str, Any]]) -> _Copy:
        flat = [tensor.detach().reshape(-1) for _, tensor in named]
        together = flat[0] if len(flat) == 1 else self._put_side_by_side(flat)
        host = self._torch.empty(together.shape, dtype=together.dtype, pin_memory=self._pinned)
        host.copy_(together, non_blocking=True)
        samples = [(name, tensor.numel(), tensor.ndim > 0) for name, tensor in named]
        return _Copy(samples, host, self._mark(together.device))

    def _put_side_by_side(self, flat: list[Any]) -> Any:
        """Gather tensors in a buffer, which is allocated on the device only once."""
        size = sum(tensor.numel() for tensor in flat)
        first = flat[0]
        # A buffer for each stream: on another stream, the next `cat` could overwrite it before this copy has read it.
        key = (first.device, self._stream_of(first.device), first.dtype)
        buffer = self._side_by_side.get(key)
        if buffer is None or buffer.numel() < size:
            with self._torch.inference_mode(mode=False):  # the buffer is also used outside of inference mode
                buffer = self._torch.empty(max(size, 64), dtype=first.dtype, device=first.device)
            self._side_by_side[key] = buffer
        together = buffer[:size]
        self._torch.cat(flat, out=together)
        return together


def _read(pending: _PendingValues) -> Arrived:
    scalars: dict[str, int | float] = {}
    samples: dict[str, bytes] = {}
    if pending.fingerprint is not None:
        for copy in pending.copies:
            sampling.fill(pending.fingerprint.tensors, [(name, size) for name, size, _ in copy.names], copy.host)
        return Arrived(0, pending.time, 1, scalars, samples, pending.fingerprint)
    for copy in pending.copies:
        start = 0
        for name, size, is_samples in copy.names:
            part = copy.host[start : start + size]
            if is_samples:
                samples[name] = to_samples(part)
            else:
                scalars[name] = to_number(part[0])
            start += size
    return Arrived(pending.step, pending.time, pending.weight, scalars, samples)
