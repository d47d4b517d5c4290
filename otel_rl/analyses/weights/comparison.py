"""Compares the weights that trainers and engines hold of one version, by the samples that they recorded.

Samples differ only if no casts explain it, so that an engine of another dtype is not blamed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple
from zlib import crc32

from otel_rl.analyses.weights.rounding import is_cast
from otel_rl.recorder.journal.records import TRAINER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.recorder.journal.records import Fingerprint, Sample

_MOST_VERSIONS = 8
"""Versions of the trainer that are remembered: engines are a few behind."""
_MOST_WAITING = 100_000
"""Tensors of engines that wait for the trainer's; they take 30 MB."""
_MOST_VARIANTS = 64
"""Tensors of one name on which ranks differ, as in tensor and pipeline parallelism without names for the whole."""
_SCALED = ("float8", "float4")
"""Formats whose numbers are mostly multiplied by scales, which are not recorded."""


class Tensor(NamedTuple):
    """The elements of a tensor that a process has; `None` for those that it does not have."""

    dtype: str
    elements: int
    values: tuple[float | None, ...]


Tensors = dict[str, Tensor]
Variants = dict[str, list[Tensor]]
"""The tensors of the trainer's ranks by name; of ranks that give other tensors the same name, all of them."""


class WeightsVerdict(NamedTuple):
    """The result of a comparison."""

    journal: str  # the process
    kind: Literal["diverged", "rounded"]
    """One of "diverged": weights differ. "rounded": they are equal, but so were those of the version before, since the
    trainer's moved by less than the precision of the engine's dtype.
    """
    side: str  # the side of the process
    version: int  # the version that it says it holds
    tensor: str  # the first tensor that differs, or that moved
    dtype: str  # its dtype in this process
    value: float  # its value in this process
    expected: float  # the trainer's value
    holds: int | None = None
    """The other version of the trainer that the differing tensors are of; `None` if there is none."""
    is_whole: bool = False  # if true, all tensors are of that version
    differing: int = 0  # the number of tensors that differ
    compared: int = 0  # the number of tensors that were compared

    def message(self, who: str) -> str:
        """Return it as a sentence about a process."""
        values = f"{self.tensor} is {self.value:.9g}, and {self.expected:.9g} in the trainer"
        if self.kind == "rounded":
            before = f"version {self.version} of {who} equals version {self.holds} in {self.dtype}"
            return f"{before}, although the trainer's weights moved: {values}"
        if self.holds is not None and self.is_whole:
            return f"version {self.version} of {who} holds the weights of version {self.holds}: {values}"
        held = "differ from the trainer's" if self.holds is None else f"are still those of version {self.holds}"
        return f"{self.differing} of {self.compared} tensors of version {self.version} of {who} {held}: {values}"


class _Held(NamedTuple):
    """The weights of a process, the version before if its samples are the same, and the comparisons so far."""

    side: str
    tensors: Tensors
    same_as: int | None
    equal: set[str]
    differing: dict[str, tuple[float, float]]  # the values here and in the trainer


class Weights:
    """The weights of the last versions; `counts` is the number of tensors that were compared, by the outcome."""

    def __init__(self) -> None:
        self._attempt = 0
        self.counts = Counter[str]()
        self._begin()

    def _begin(self) -> None:
        self._trainer: dict[int, Variants] = {}
        self._ranks: dict[int, set[str]] = {}  # that recorded the version
        self._waiting: dict[tuple[str, int], _Held] = {}
        self._last: dict[str, tuple[int, int]] = {}  # the last version of each engine, and its checksum
        self._said: dict[str, tuple[int, str, int | None]] = {}  # the version, the tensor, the version that it is of
        self._well: dict[str, tuple[int, ...]] = {}  # the last versions that were as they should
        self._rounded: set[str] = set()

    def add(self, journal: str, attempt: int, record: Fingerprint) -> list[WeightsVerdict]:
        """Add what a process recorded; return what is new about it, or about engines that were faster."""
        if attempt > self._attempt:  # its versions may begin at 0 again
            self._attempt = attempt
            self._begin()
        if attempt < self._attempt:
            return []
        tensors = {name: _tensor(sample) for name, sample in record.tensors.items()}
        if record.side == TRAINER:
            return self._add_rank(journal, record.version, tensors)
        return self._add_engine(journal, record, tensors)

    def _add_rank(self, journal: str, version: int, tensors: Tensors) -> list[WeightsVerdict]:
        """Add what a rank has to its version, and compare the engines that wait for it."""
        if journal in self._ranks.get(version, ()):  # it changed its weights, and not their version
            del self._trainer[version], self._ranks[version]
        known = self._trainer.setdefault(version, {})
        self._ranks.setdefault(version, set()).add(journal)
        for name, tensor in tensors.items():
            _merge(known.setdefault(name, []), tensor)
        for old in list(self._trainer)[:-_MOST_VERSIONS]:
            del self._trainer[old], self._ranks[old]
        waiting = [(key, held) for key, held in self._waiting.items() if key[1] == version]
        verdicts = [self._judge(*key, held, tensors) for key, held in waiting]
        return [one for one in verdicts if one is not None]

    def _add_engine(self, journal: str, record: Fingerprint, tensors: Tensors) -> list[WeightsVerdict]:
        checksum = 0
        for name, sample in sorted(record.tensors.items()):
            checksum = crc32(sample.values, crc32(name.encode(), checksum))
        before = self._last.get(journal)
        self._last[journal] = record.version, checksum
        same_as = before[0] if before and before[1] == checksum and before[0] != record.version else None
        held = _Held(record.side, tensors, same_as, set(), {})
        verdict = self._judge(journal, record.version, held, tensors)
        for key in [one for one in self._waiting if one[0] == journal][:-1]:
            del self._waiting[key]
        known = self._trainer.get(record.version, {})
        if any(_is_unknown(known.get(name, []), tensor) for name, tensor in tensors.items()):
            self._waiting[journal, record.version] = held
        while sum(len(one.tensors) for one in self._waiting.values()) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return [] if verdict is None else [verdict]

    def _judge(self, journal: str, version: int, held: _Held, names: Iterable[str]) -> WeightsVerdict | None:
        """Compare the tensors of these names with the trainer's; return what is new about the process."""
        trainer = self._trainer.get(version, {})
        self.counts.update(_compare(held, trainer, names))
        if held.differing:
            return self._diverged(journal, version, held)
        if held.equal and version not in (well := self._well.get(journal, ())):
            self._well[journal] = (*well[-1:], version)
        moved = (
            self._moved(journal, held, version) if held.same_as is not None and journal not in self._rounded else None
        )
        if moved is None:
            return None
        self._rounded.add(journal)
        return moved

    def _diverged(self, journal: str, version: int, held: _Held) -> WeightsVerdict | None:
        """Return the verdict, unless the process has had the same fault since the last one."""
        name, (value, expected) = next(iter(held.differing.items()))
        others = sorted(self._trainer.keys() - {version}, key=lambda one: (abs(one - version), one))
        holds = next((one for one in others if _agree(held.tensors, self._trainer[one], held.differing)), None)
        said, self._said[journal] = self._said.get(journal), (version, name, holds)
        if said is not None:
            was_well = any(said[0] < one < version for one in self._well.get(journal, ()))
            is_stuck = holds == said[2] or (holds is None and said[2] is not None and said[2] not in self._trainer)
            is_as_far = holds is not None and said[2] is not None and version - holds == said[0] - said[2]
            if said[0] == version or (name == said[1] and (is_stuck or is_as_far) and not was_well):
                self._said[journal] = (version, name, said[2] if holds is None else holds)
                return None
        compared = held.equal | held.differing.keys()
        return WeightsVerdict(
            journal,
            kind="diverged",
            side=held.side,
            version=version,
            tensor=name,
            dtype=held.tensors[name].dtype,
            value=value,
            expected=expected,
            holds=holds,
            is_whole=holds is not None and _agree(held.tensors, self._trainer[holds], compared),
            differing=len(held.differing),
            compared=len(compared),
        )

    def _moved(self, journal: str, held: _Held, version: int) -> WeightsVerdict | None:
        """Return that the trainer's weights moved since the version that has the same samples."""
        before, now = self._trainer.get(held.same_as or 0, {}), self._trainer.get(version, {})
        for name in sorted(held.equal):
            known, tensor = before.get(name, []), held.tensors[name]
            if len(known) != 1 or len(now[name]) != 1 or known[0].elements != now[name][0].elements:
                continue
            for old, new, value in zip(known[0].values, now[name][0].values, tensor.values, strict=False):
                if old is not None and new is not None and value is not None and old != new:
                    what = held.side, version, name, tensor.dtype, value, new
                    return WeightsVerdict(journal, "rounded", *what, held.same_as)
        return None


def _tensor(sample: Sample) -> Tensor:
    values = iter(array("d", sample.values))
    held = range(sample.held.bit_length())
    return Tensor(sample.dtype, sample.elements, tuple(next(values) if sample.held >> n & 1 else None for n in held))


def _merge(variants: list[Tensor], tensor: Tensor) -> None:
    """Add a tensor of a rank: to that of other ranks, if it is another part of it or the same, else by itself."""
    for n, known in enumerate(variants):
        is_same = (known.dtype, known.elements) == (tensor.dtype, tensor.elements)
        if is_same and all(theirs == own for theirs, own in _pairs(tensor, known)):
            both = zip_longest(known.values, tensor.values)
            variants[n] = known._replace(values=tuple(b if a is None else a for a, b in both))
            return
    if len(variants) < _MOST_VARIANTS:
        variants.append(tensor)


def _pairs(tensor: Tensor, known: Tensor) -> list[tuple[float, float]]:
    """Return the elements that both have: the trainer's, and those of the process."""
    if known.elements != tensor.elements:
        return []
    both = zip(known.values, tensor.values, strict=False)
    return [(theirs, own) for theirs, own in both if theirs is not None and own is not None]


def _is_unknown(variants: list[Tensor], tensor: Tensor) -> bool:
    """Return whether the trainer may still record elements of a tensor."""
    count = sum(value is not None for value in tensor.values)
    alike = [one for one in variants if one.elements == tensor.elements]
    return not variants or (bool(alike) and all(len(_pairs(tensor, one)) < count for one in alike))


def _unlike(tensor: Tensor, variants: list[Tensor]) -> tuple[float, float] | bool | None:
    """Return an element of a process and of the trainer that differ; false if none does, `None` if none is on both."""
    unlike: tuple[float, float] | None = None
    for known in variants:
        pairs = _pairs(tensor, known)
        if pairs and is_cast(pairs, known.dtype, tensor.dtype):
            return False
        if pairs and unlike is None:
            alone = [one for one in pairs if not is_cast([one], known.dtype, tensor.dtype)] or pairs
            unlike = alone[0][::-1]
    if len(variants) >= _MOST_VARIANTS:  # the right one may be among those that were left out
        return None
    return unlike


def _agree(tensors: Tensors, trainer: Variants, names: Iterable[str]) -> bool:
    """Return whether the tensors of these names are the trainer's."""
    return all(_unlike(tensors[name], trainer.get(name, [])) is False for name in names)


def _compare(held: _Held, trainer: Variants, names: Iterable[str]) -> Mapping[str, int]:
    """Compare tensors with the trainer's; return how many were compared for the first time, by the outcome."""
    counts, are_plain = Counter[str](), False
    unexplained: dict[str, tuple[float, float]] = {}
    for name in names:
        tensor, variants = held.tensors.get(name), trainer.get(name, [])
        unlike = None if tensor is None else _unlike(tensor, variants)
        if tensor is None or unlike is None:
            continue
        is_new = name not in held.equal and name not in held.differing
        is_scaled = tensor.dtype.startswith(_SCALED) and tensor.dtype != variants[0].dtype
        if isinstance(unlike, bool):
            held.equal.add(name)
            counts["equal"] += is_new
            are_plain |= is_scaled and any(tensor.values)
        elif is_scaled:
            unexplained[name] = unlike
        else:
            held.differing.setdefault(name, unlike)
            held.equal.discard(name)
            counts["diverged"] += is_new
    if are_plain:  # then the others have no scales either
        held.differing.update(unexplained)
    counts["diverged" if are_plain else "unknown"] += len(unexplained)
    return +counts
