"""Conversion of floats, NumPy and torch scalars, and 1-D arrays to plain numbers, without waiting for a device."""

from __future__ import annotations

import numbers
import sys
from array import array
from collections import deque
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from operator import countOf
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.recorder.convert.refused_values import (
    EXPLAINED,
    Unconvertible,
    Unnamed,
    instead_of,
    of_foreign,
    unreadable,
)
from otel_rl.recorder.errors.texts import name_of, shown, text_of
from otel_rl.recorder.secrets import clean_set

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = frozenset({float, int})
_good_names = clean_set()
"""Names of metrics that were found valid; checking 100 names again would take several microseconds."""
_MOST_NAMES = 1 << 14
_FEW = 5
_LARGEST_INT = 1 << 63
WHOLE = 1 << 62
"""Exclusive upper bound of steps, versions, sizes and times (until 2116): sums of two fit into 64 bits."""
_SCALARS = {"d": frozenset({float, int, bool}), "i": frozenset({int}), "B": frozenset({bool, int})}
_SEQUENCES = (list, tuple, array, deque, range)
_SHAPE = "shape {} where a number or a 1-D array is expected; log x.mean(), or x.ravel() for all"
_RAGGED = "a nested tensor, whose parts differ in length; log x.values() for all, or their means"
_ALL_MASKED = "all values are masked; leave it out"
_MASKED = "a masked value; log only those that are there"


def is_plain(values: Mapping[str, object]) -> bool:
    """Return whether all names are known to be valid and all values are `float` or `int`, so that they can be recorded.

    Otherwise pass the values to `sort`, which checks and remembers the names.
    """
    if len(values) <= _FEW:  # a loop is faster
        for name, value in values.items():
            kind = type(value)
            if (kind is not float and kind is not int) or name not in _good_names:
                return False
        return True
    numbers_only = countOf(map(type, values.values()), float) == len(values) or PLAIN.issuperset(
        map(type, values.values())
    )
    return numbers_only and _good_names.issuperset(values)


class Sorted(NamedTuple):
    """Values by kind and name: numbers, observations as native doubles, and torch tensors on a device."""

    scalars: dict[str, int | float]
    samples: dict[str, bytes]
    on_device: dict[str, Any]


def sort(values: Mapping[str, object], refuse: Callable[[str, str], None]) -> Sorted:
    """Sort values by their kind; call `refuse` with a reason and a message for what cannot be recorded.

    Empty arrays are left out, because a rank may have no observations.
    """
    by_kind = Sorted({}, {}, {})
    try:
        kinds = {*map(type, values.values())} - PLAIN
        if kinds and any(issubclass(kind, Mapping) for kind in kinds):
            values = _flat(values, refuse)
        for name, value in values.items():
            try:
                _sort(by_kind, name, value)
            except Unnamed as error:
                refuse("name", str(error))
            except Exception as error:  # what a foreign object's conversion may raise is not known
                why = error if isinstance(error, EXPLAINED) else unreadable(value)
                refuse("value", f"{text_of(name)}: {text_of(why)}")
    except Exception as error:  # not a mapping, or a mapping that raises
        refuse("log", f"log: {text_of(error)}")
    return by_kind


def _flat(values: Mapping[str, object], refuse: Callable[[str, str], None]) -> dict[str, object]:
    """Return the values of nested mappings too, their names joined with slashes; plain values win over them."""
    flat: dict[str, object] = {}

    def put(prefix: str, nested: Mapping[str, object], above: tuple[int, ...]) -> None:
        for key, value in nested.items():
            name = f"{prefix}{key}" if above and isinstance(key, (str, int)) else key
            if issubclass(type(value), Mapping) and isinstance(name, str) and id(value) not in above:
                try:
                    put(f"{name}/", value, (*above, id(value)))  # type: ignore[arg-type] # its type was just looked at
                except Exception as error:  # what a foreign mapping may raise is not known
                    refuse("value", f"{text_of(name)}: {text_of(error)}")
            elif name in flat or (above and name in values):
                refuse("value", f"{text_of(name)}: the name is given twice; the value in the nested mapping is refused")
            else:
                flat[name] = value

    put("", values, ())
    return flat


def _sort(by_kind: Sorted, name: object, value: object) -> None:
    name = _good_name(name)
    kind = type(value)
    if kind is float:
        by_kind.scalars[name] = value  # type: ignore[assignment] # its type was just looked at
    elif isinstance(value, type):  # has the attributes of its objects
        raise Unconvertible(f"{value.__name__} is not a number{instead_of(value)}")
    elif getattr(value, "is_cuda", False):
        _check_on_device(value)
        by_kind.on_device[name] = value
    elif getattr(value, "ndim", None) or kind in _SEQUENCES:
        if samples := to_samples(value):
            by_kind.samples[name] = samples
    else:
        by_kind.scalars[name] = to_number(value)


def _good_name(name: object) -> str:
    if type(name) is str and name in _good_names:
        return name
    if not isinstance(name, str) or not str.__len__(name):
        raise Unnamed(f"invalid metric name {shown(name)}: must be a non-empty str")
    try:
        good = name_of(str.__str__(name))
    except ValueError as error:
        raise Unnamed(f"metric: {error}") from None
    if len(_good_names) >= _MOST_NAMES:
        _good_names.clear()
    if good == name:
        _good_names.add(good)
    return good


def _check_on_device(tensor: Any) -> None:
    """Check type, shape and dtype of a tensor, without asking the device."""
    torch = sys.modules["torch"]
    if tensor.is_nested:
        raise Unconvertible(_RAGGED)
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # each rank has only a part of a DTensor
        raise Unconvertible(f"a {type(tensor).__name__} on {tensor.device}; log its local or full tensor")
    if tensor.ndim > 1 and tensor.numel() != 1:
        raise Unconvertible(_SHAPE.format(tuple(tensor.shape)))
    if tensor.dtype is torch.bool or tensor.is_complex() or tensor.is_quantized or tensor.layout is not torch.strided:
        advice = "; log x.float()" if tensor.dtype is torch.bool else ""
        advice = "; log x.dequantize()" if tensor.is_quantized else advice
        raise Unconvertible(f"a tensor of {tensor.dtype} where numbers are expected{advice}")


def to_samples(value: object) -> bytes:
    """Convert a 1-D array, tensor or sequence of numbers to native doubles; masked values are left out.

    Raises:
        Unconvertible: The value is not 1-D, does not hold plain real numbers, or is on a device.
    """
    if isinstance(value, _SEQUENCES):
        plain = PLAIN.issuperset(map(type, value))
        return array("d", value if plain else [to_number(item) for item in value]).tobytes()
    numbers = _on_host(value)
    return numbers.tobytes() if isinstance(numbers, array) else numbers.astype("=f8", copy=False).tobytes()


def packed(code: str, values: object) -> bytes:
    """Convert a 1-D array, tensor or sequence to the native numbers of an array with this type code.

    Raises:
        Unconvertible: As in `to_samples`, or a number is not an integer that fits.
    """
    if isinstance(values, (list, tuple)) and _SCALARS[code].issuperset(map(type, values)):
        given, converted = values, None
    elif not isinstance(values, _SEQUENCES) and not hasattr(values, "ndim"):
        raise Unconvertible(f"{type(values).__name__} where a list of numbers is expected")
    elif code == "d":
        return to_samples(values)
    elif isinstance(values, _SEQUENCES):
        given, converted = [to_whole(item) for item in values], None
    elif isinstance(given := _on_host(values), array):
        given, converted = [to_whole(item) for item in given], None
    else:
        with sys.modules["numpy"].errstate(invalid="ignore"):  # NaN is refused below
            converted = given.astype(f"={code}")
    try:
        if converted is None:
            return array(code, given).tobytes()
    except OverflowError as error:
        raise Unconvertible(f"integers are expected: {error}") from None
    if not (converted == given).all():
        raise Unconvertible("integers are expected that fit, not fractions")
    return converted.tobytes()  # type: ignore[no-any-return] # an array of NumPy


def _on_host(value: Any) -> Any:
    """Return the numbers of a 1-D array or tensor as an array of NumPy, or of Python if there is no NumPy.

    Raises:
        Unconvertible: As in `to_samples`.
    """
    return of_foreign(_numbers, value)


def _numbers(value: Any) -> Any:
    _check_plain(value)
    if not hasattr(value, "dtype"):  # a memoryview, a table
        raise Unconvertible(f"{type(value).__name__} is not a number{instead_of(value)}")
    if value.ndim != 1:
        raise Unconvertible(_SHAPE.format(tuple(value.shape)))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = _numpy_of(value, torch)
    numpy = sys.modules.get("numpy")
    if numpy is None:  # torch without NumPy
        return array("d", value.tolist())
    numbers = numpy.asarray(value.compressed() if hasattr(value, "compressed") else value)
    if value.size and not numbers.size:
        raise Unconvertible(_ALL_MASKED)
    if (
        numbers.dtype.kind not in "fiub" and numbers.dtype.type.__module__ != "ml_dtypes"
    ):  # JAX's short floats and integers
        advice = {"c": "abs(x)", "V": "one of its fields"}.get(numbers.dtype.kind, "x.astype(float)")
        raise Unconvertible(f"an array of {numbers.dtype} where numbers are expected; log {advice}")
    return numbers


def _numpy_of(tensor: Any, torch: Any) -> Any:
    if tensor.is_complex():
        raise Unconvertible(f"a tensor of {tensor.dtype} where numbers are expected; log abs(x)")
    if hasattr(tensor, "get_mask"):  # of `torch.masked`
        kept, size = tensor.get_data()[tensor.get_mask()], tensor.numel()
        if size and not kept.numel():
            raise Unconvertible(_ALL_MASKED)
        tensor = kept
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.detach().to_dense()
    if tensor.is_floating_point() and tensor.dtype not in (torch.half, torch.float, torch.double):
        tensor = tensor.detach().double()  # NumPy has no short floats
    return tensor.numpy(force=True) if "numpy" in sys.modules else tensor.double()


def to_number(value: object) -> int | float:
    """Convert a real scalar to `int` or `float` without rounding.

    Raises:
        Unconvertible: The value is a text, complex, not a scalar, masked, more than a number, or on a device.
    """
    if type(value) is float:
        return value
    if isinstance(value, int):  # a truth value is 0 or 1, as trackers chart it
        return int(value) if -_LARGEST_INT <= value < 2 * _LARGEST_INT else float(value)
    return of_foreign(_scalar, value)


def _scalar(value: object) -> int | float:
    _check_plain(value)
    item = getattr(value, "item", None)
    if item is not None:
        if getattr(value, "size", None) not in (1, None) and not callable(value.size):  # type: ignore[attr-defined]
            raise Unconvertible(f"{value.size} values where one is expected")  # type: ignore[attr-defined]
        if getattr(value, "mask", False):
            raise Unconvertible(_MASKED)
        if hasattr(value, "get_mask") and not value.get_mask().all():
            raise Unconvertible(_MASKED)
        scalar = item()
        return to_number(scalar) if isinstance(scalar, (int, float, complex, str, bytes)) else float(scalar)
    if isinstance(value, (numbers.Real, Decimal)):
        return float(value)
    raise Unconvertible(f"{type(value).__name__} is not a number{instead_of(value)}")


def to_whole(value: Any, low: int = 0, bound: int = WHOLE) -> int:
    """Convert a value with `int`.

    Raises:
        Exception: `int` raised it.
        Unconvertible: The number is less than `low`, or at least `bound`.
    """
    if isinstance(value, float) and not value.is_integer():
        raise Unconvertible(f"{value} is not an integer")
    number = int(value)
    if not low <= number < bound:
        raise Unconvertible(f"{shown(number)} is not at least {low} and below {bound}")
    return number


def _check_plain(value: object) -> None:
    """Check that a value of a library is on the host, and that its numbers are all of it: not a time, nor a length."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_nested:
            raise Unconvertible(_RAGGED)
        if type(value).__module__.startswith("torch.distributed"):  # reading it may be a collective
            raise Unconvertible(
                f"a {type(value).__name__}, of which each rank has a part; log its local or full tensor"
            )
        if not value.is_cpu:
            raise Unconvertible(
                f"a tensor on {value.device} would make the step wait for the device; "
                "log `.item()` or `.cpu()` where the trainer waits anyway"
            )
        return
    if type(value).__module__.startswith("jax"):
        if value.is_deleted():  # type: ignore[attr-defined]
            raise Unconvertible("a JAX array that was donated or deleted; log it before")
        if any(device.platform != "cpu" for device in value.devices()):  # type: ignore[attr-defined]
            raise Unconvertible("a JAX array on a device would make the step wait; log float(value) where it is ready")
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):
        raise Unconvertible(f"a {value.dtype}; log seconds as a number: x / np.timedelta64(1, 's')")  # type: ignore[attr-defined]
    unit = getattr(value, "unit", getattr(value, "units", None))
    if unit is not None:
        advice = instead_of(value) if isinstance(value, (date, timedelta)) else "; log its plain number"
        raise Unconvertible(f"a {type(value).__name__} in {text_of(unit)}{advice}")
