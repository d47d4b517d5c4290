"""Values: numbers are converted exactly, and each value that is not a number is refused alone."""

from __future__ import annotations

import enum
import math
import struct
from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import otel_rl
from otel_rl.recorder.convert.refused_values import Unconvertible
from otel_rl.recorder.convert.values import is_plain, sort, to_number, to_samples
from otel_rl.recorder.journal.records import Logged, Record, Refusals
from tests.real_parts import part

torch = part("torch")

FLOATS = st.floats()
FLOATS32 = st.floats(width=32)
INT64 = st.integers(-(2**63), 2**63 - 1)


class Unit(enum.Enum):
    """A value that is not a number."""

    SECOND = "s"


class Level(enum.IntEnum):
    """An integer with a name."""

    HIGH = 3


class Percent(float):
    """A float of a type of its own."""


class Length(np.ndarray):
    """An array with a unit, as of astropy."""

    unit = "m"


class Faulty(UserDict[str, object]):
    """A mapping that cannot be read."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("not now")


class Odd:
    """An object whose conversion fails in a way of its own."""

    def item(self) -> float:
        """Fail."""
        raise RuntimeError("not now")


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


@given(FLOATS)
def test_float(value: float) -> None:
    """A float stays the same to the bit, NaN, infinities and the zero's sign included."""
    assert bits(value) == bits(to_number(value))


@given(INT64)
def test_int(value: int) -> None:
    """An int of 64 bits stays an int, exactly, however NumPy and torch hold it."""
    held = [value, np.int64(value), np.array(value), np.array([value]), torch.tensor(value), torch.tensor([[value]])]
    numbers = [to_number(one) for one in held]

    assert [value] * len(held) == numbers
    assert {int} == {type(number) for number in numbers}


@given(FLOATS)
def test_float64(value: float) -> None:
    """A float of 64 bits stays the same to the bit, however NumPy and torch hold it."""
    parameter = torch.nn.Parameter(torch.tensor(value, dtype=torch.float64))
    held = [np.float64(value), np.array(value), np.array([[value]]), torch.tensor([value], dtype=torch.float64)]
    numbers = [to_number(one) for one in [*held, parameter]]

    assert {bits(value)} == {bits(number) for number in numbers}
    assert {float} == {type(number) for number in numbers}


@given(FLOATS32)
def test_float32(value: float) -> None:
    """A float of 32 bits becomes the float that is equal to it."""
    held = [
        np.float32(value),
        np.array(value, np.float32),
        torch.tensor(value),
        torch.tensor(value, requires_grad=True),
    ]
    numbers = [to_number(one) for one in held]

    assert {float} == {type(number) for number in numbers}
    assert all(number == value or (math.isnan(number) and math.isnan(value)) for number in numbers)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float16(0.1), 0.0999755859375),
        (torch.tensor(0.1, dtype=torch.float16), 0.0999755859375),
        (torch.tensor(0.1, dtype=torch.bfloat16), 0.10009765625),
        (np.longdouble("0.5"), 0.5),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.int8(-1), -1),
        (torch.tensor(7, dtype=torch.uint8), 7),
        (2**63, 2**63),
        (2**64, float(2**64)),
        (-(2**70), -float(2**70)),
        (Level.HIGH, 3),
        (Percent(0.5), 0.5),
        (Fraction(1, 3), 1 / 3),
        (Decimal("0.5"), 0.5),
        (np.array(Fraction(1, 4), dtype=object), 0.25),
        (True, 1),
        (np.bool_(False), 0),
        (torch.tensor(True), 1),
    ],
)
def test_other_numbers(value: object, expected: float) -> None:
    """Every other real scalar becomes the nearest `int` or `float`."""
    number = to_number(value)

    assert (expected, type(expected)) == (number, type(number))


@pytest.mark.parametrize(
    "value",
    [
        None,
        "0.5",
        b"0.5",
        "",
        1j,
        np.complex64(1),
        torch.tensor(1j),
        {1.0, 2.0},
        timedelta(seconds=1),
        datetime(2026, 1, 1, tzinfo=UTC),
        Unit.SECOND,
        Path("1"),
        [1.0, "2.0"],
        [[1.0, 2.0], [3.0]],
        [torch.tensor(1.0, device="meta")],
        np.ma.masked,
        np.ma.array(5.0, mask=True),
        np.ma.array([5.0], mask=True),
        np.ma.array([1.0, 2.0], mask=True).mean(),
        [1.0, np.ma.masked],
        [1.0, np.ma.array([5.0], mask=True)],
        np.timedelta64(5, "ns"),
        np.timedelta64(5, "s"),
        np.array(5, "m8[ns]"),
        np.datetime64("2026-01-01T00:00:00", "ns"),
        [np.timedelta64(5, "ns")],
        np.array([1.0, 2.0]).view(Length),
        np.array(1.0).view(Length),
        np.ones((2, 2)),
        np.ones((1, 1)),
        np.array([1.0, None]),
        np.array([1j]),
        np.array(["1.0"]),
        torch.ones(2, 2),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, device="meta"),
        torch.tensor(1.0, device="meta"),
        10**400,
        Fraction(10**400),
        Odd(),
        object(),
        float,
        np.float64,
        torch.Tensor,
        lambda: 1.0,
        Faulty(x=1.0),
    ],
)
def test_refused_alone(value: object) -> None:
    """A value that is not a real scalar on the host is refused with its name, and the others are kept."""
    refused: list[tuple[str, str]] = []
    kept, _, _ = sort({"before": 1.0, "bad": value, "after": 2}, lambda reason, text: refused.append((reason, text)))
    ((reason, text),) = refused

    assert kept == {"before": 1.0, "after": 2}
    assert reason == "value"
    assert text.startswith("bad: ")


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ({1.0}, "set is not a number; it has equal values once: log a list"),
        (1j, "complex is not a number; log abs(x), or x.real and x.imag"),
        (np.complex64(1), "complex is not a number; log abs(x), or x.real and x.imag"),
        (timedelta(1), "timedelta is not a number; log x.total_seconds()"),
        (Unit.SECOND, "Unit is not a number; log its value, or use run.params()"),
        (np.ma.array([1.0], mask=True), "all values are masked; leave it out"),
        ([[1.0], [2.0]], "list is not a number; log one list, without lists in it"),
        (np.ones((1, 2)), "shape (1, 2) where a number or a 1-D array is expected; log x.mean(), or x.ravel() for all"),
        (map(float, "12"), "map is not a number; log list(x)"),
        (np.ones(1).item, "builtin_function_or_method is not a number; call it"),
        (np.float64, "float64 is not a number; log a value"),
        (object(), "object is not a number; use run.table(), run.event() or run.params() for what is not a number"),
        (type("Table", (), {})(), "Table is not a number; use run.table()"),
    ],
)
def test_advice(value: object, advice: str) -> None:
    """A refused value is named with what to log instead."""
    refused: list[str] = []
    sort({"x": value}, lambda _, text: refused.append(text))

    assert refused == [f"x: {advice}"]


def _jagged() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def _masked(*values: float) -> Any:
    """Return a tensor of `torch.masked`; negative values are masked."""
    data = torch.tensor(values)
    return torch.masked.masked_tensor(data, data >= 0)


def _released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


_RAGGED = "a nested tensor, whose parts differ in length; log x.values() for all, or their means"
_UNREADABLE = "cannot be read as a number; log float(x), or a list of numbers"
_UNEXPLAINED: dict[str, tuple[Callable[[], object], str]] = {
    "jagged": (_jagged, _RAGGED),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), _RAGGED),
    "a list of jagged": (lambda: [_jagged()], _RAGGED),
    "masked": (lambda: _masked(-1.0)[0], "a masked value; log only those that are there"),
    "all masked": (lambda: _masked(-1.0, -2.0), "all values are masked; leave it out"),
    "bits": (lambda: torch.ones(2).to(torch.uint16).view(torch.bits16), f"Tensor {_UNREADABLE}"),
    "uninitialized": (torch.nn.UninitializedParameter, f"UninitializedParameter {_UNREADABLE}"),
    "a list of arrays": (lambda: [torch.ones(2)], f"Tensor {_UNREADABLE}"),
    "memoryview": (lambda: memoryview(array("d", [1.0])), "memoryview is not a number; log list(x)"),
    "memoryview of two axes": (lambda: memoryview(np.ones((2, 2))), "memoryview is not a number; log list(x)"),
    "released memoryview": (_released, f"memoryview {_UNREADABLE}"),
    "fields": (
        lambda: np.zeros(2, "i4,f8"),
        "an array of [('f0', '<i4'), ('f1', '<f8')] where numbers are expected; log one of its fields",
    ),
    "a record": (lambda: np.zeros(2, "i4,f8")[0], f"void {_UNREADABLE}"),
}


@pytest.mark.filterwarnings("ignore")  # some of these are prototypes of torch
@pytest.mark.parametrize(("make", "advice"), _UNEXPLAINED.values(), ids=_UNEXPLAINED)
def test_no_text_of_another_library(make: Callable[[], object], advice: str) -> None:
    """The exceptions of torch and NumPy speak to those who work on them; the message says what to log."""
    refused: list[str] = []
    sort({"x": make()}, lambda _, text: refused.append(text))

    assert refused == [f"x: {advice}"]


_UNKNOWN_TO_NUMPY: dict[str, Callable[[], object]] = {
    "quantized": lambda: torch.quantize_per_tensor(torch.tensor([1.0, 2.5]), 0.5, 0, torch.qint8),
    "short": lambda: torch.tensor([1.0, 2.5]).to(torch.float8_e4m3fn),
    "masked": lambda: _masked(1.0, -1.0, 2.5),
    "sparse": lambda: torch.tensor([1.0, 2.5]).to_sparse(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", _UNKNOWN_TO_NUMPY.values(), ids=_UNKNOWN_TO_NUMPY)
def test_tensors_that_numpy_does_not_know(make: Callable[[], object]) -> None:
    """They have numbers all the same."""
    assert list(memoryview(to_samples(make())).cast("d")) == [1.0, 2.5]


@pytest.mark.parametrize("value", [np.str_("3.5"), np.bytes_(b"3.5"), np.array("3.5", dtype=object)], ids=repr)
def test_text_in_numpy(value: object) -> None:
    """A text is not a number, also as a NumPy scalar."""
    with pytest.raises(Unconvertible):
        to_number(value)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.5],
        (1, 2.5),
        deque([1, 2.5]),
        array("f", [1, 2.5]),
        [np.float32(1), torch.tensor(2.5)],
        np.array([1, 2.5]),
        np.array([1, 2.5], dtype=np.float16),
        np.array([1, 0, 2.5])[::2],
        np.array([1, 2.5], dtype=">f8"),
        torch.tensor([1, 2.5]),
        torch.tensor([1, 2.5], dtype=torch.bfloat16),
        torch.tensor([1, 2.5], requires_grad=True),
        torch.tensor([[1, 0], [2.5, 0]])[:, 0],
        np.ma.array([1, 1e20, 2.5], mask=[False, True, False]),
        np.ma.array([1, 2.5]),
    ],
    ids=repr,
)
def test_samples(value: object) -> None:
    """Sequences and 1-D arrays of numbers are samples: doubles, whatever they were; masked ones are not there."""
    scalars, samples, _ = sort({"x": value}, pytest.fail)

    assert (scalars, [1.0, 2.5]) == ({}, array("d", samples["x"]).tolist())


@pytest.mark.parametrize(
    "value", [[True, False], np.array([True, False]), torch.tensor([True, False]), np.ma.array([True, False])], ids=repr
)
def test_truth_values(value: object) -> None:
    """Truth values are 0 and 1 in arrays too."""
    assert array("d", sort({"x": value}, pytest.fail).samples["x"]).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("value", [[], (), np.array([]), torch.tensor([]), np.ma.array([])], ids=repr)
def test_no_samples(value: object) -> None:
    """Empty arrays are left out: a rank may have no samples."""
    assert sort({"x": value}, pytest.fail) == ({}, {}, {})


@pytest.mark.parametrize("value", [[0.5], np.array([0.5]), torch.tensor([0.5])], ids=repr)
def test_one_sample(value: object) -> None:
    """One sample is samples too: what is logged has the same names whatever the batch size."""
    assert sort({"x": value}, pytest.fail) == ({}, {"x": array("d", [0.5]).tobytes()}, {})


@pytest.mark.parametrize("name", [None, 7, ("a", "b"), b"loss", ""], ids=repr)
def test_bad_name(name: object) -> None:
    """A name that is not a str is refused alone."""
    refused: list[tuple[str, str]] = []
    values = {"loss": 1.0, name: 2.0, "reward": 3.0}
    kept, _, _ = sort(values, lambda reason, text: refused.append((reason, text)))  # type: ignore[arg-type]
    ((reason, text),) = refused

    assert kept == {"loss": 1.0, "reward": 3.0}
    assert reason == "name"
    assert repr(name) in text


def test_device_tensor_says_what_to_do() -> None:
    """The refusal of a tensor on a device has the reason and the fix."""
    with pytest.raises(Unconvertible, match=r"a tensor on meta would make the step wait.*`\.item\(\)`"):
        to_number(torch.tensor(1.0, device="meta"))


@pytest.mark.slow
def test_a_tensor_of_which_each_rank_has_a_part() -> None:
    """Reading a DTensor can be a collective, so it is refused, on the host too."""
    distributed = pytest.importorskip("torch.distributed")
    tensors = pytest.importorskip("torch.distributed.tensor")
    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        mesh = distributed.init_device_mesh("cpu", (1,))
        with pytest.raises(Unconvertible, match="log its local or full tensor"):
            to_number(tensors.distribute_tensor(torch.tensor(1.0), mesh))
    finally:
        distributed.destroy_process_group()


def test_graph_is_kept() -> None:
    """Reading a tensor leaves its graph alone: `backward` still works."""
    weight = torch.tensor(2.0, requires_grad=True)
    loss = weight * weight
    to_number(loss)
    loss.backward()

    assert weight.grad == torch.tensor(4.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, True),
        ({"a": 1, "b": 1.0}, True),
        ({"a": True}, False),
        ({"a": np.float64(1)}, False),
        ({1: 1.0}, False),
    ],
)
def test_is_plain(values: dict[str, object], expected: bool) -> None:
    """Floats and ints under known names need no conversion; their subclasses do."""
    sort({"a": 1, "b": 1}, pytest.fail)

    assert expected == is_plain(values)


def test_log(recording: otel_rl.Run, records_of: Callable[[otel_rl.Run], list[Record]]) -> None:
    """One call with all kinds of values journals the good ones together and counts each of the others."""
    with recording.step(0):
        recording.log({"a": 0.1, "b": np.float32(0.5), "c": "text", "d": torch.tensor(3), "e": None, "f": math.inf})
    records = records_of(recording)

    assert [{"a": 0.1, "b": 0.5, "d": 3, "f": math.inf}] == [r.values for r in records if isinstance(r, Logged)]
    assert [r.counts for r in records if isinstance(r, Refusals)] == [{"value": 1}, {"value": 2}]


def test_log_of_refused_values_only(recording: otel_rl.Run, records_of: Callable[[otel_rl.Run], list[Record]]) -> None:
    """A call of which nothing is left journals no values."""
    recording.log({"a": "text"}, step=0)

    assert [record for record in records_of(recording) if isinstance(record, Logged)] == []


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_log_of_a_huge_int(
    recording: otel_rl.Run, records_of: Callable[[otel_rl.Run], list[Record]], value: int
) -> None:
    """An int beyond 64 bits is logged as a float, together with plain values."""
    recording.log({"a": 1.5, "huge": value}, step=0)

    assert [{"a": 1.5, "huge": float(value)}] == [r.values for r in records_of(recording) if isinstance(r, Logged)]


@pytest.mark.parametrize("kind", [Counter, OrderedDict, ChainMap, MappingProxyType])
def test_each_kind_of_mapping(kind: Callable[[dict[str, float]], object]) -> None:
    """A nested mapping need not be a dict."""
    assert sort({"n": kind({"eos": 2.0}), "loss": 1}, pytest.fail).scalars == {"n/eos": 2.0, "loss": 1}


def test_nested_mappings() -> None:
    """Their names are joined with slashes; what is refused in them costs itself alone."""
    refused: list[tuple[str, str]] = []
    loop: dict[str, object] = {"ok": 1}
    loop["again"] = loop
    values = {"train": {"loss": 0.5, "of": {"kl": np.float32(2), 0: [1.0]}, "bad": None, (): 1}, "loop": loop, "no": {}}
    scalars, samples, _ = sort(values, lambda reason, text: refused.append((reason, text.partition(": ")[0])))

    assert scalars == {"train/loss": 0.5, "train/of/kl": 2.0, "loop/ok": 1}
    assert list(samples) == ["train/of/0"]
    assert refused == [("value", "train/bad"), ("name", "invalid metric name ()"), ("value", "loop/again")]


@pytest.mark.parametrize("turned", [False, True])
def test_a_name_that_is_given_twice(turned: bool) -> None:
    """Once nested and once not: the plain one is recorded in any order, and the other one is refused by name."""
    refused: list[str] = []
    given = {"train/loss": 1.0, "train": {"loss": 2.0}}
    scalars, _, _ = sort(dict(reversed(given.items())) if turned else given, lambda _, text: refused.append(text))

    assert (scalars, len(refused), refused[0].partition(": ")[0]) == ({"train/loss": 1.0}, 1, "train/loss")
