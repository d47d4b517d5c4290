"""Weights of trainers and engines, compared by samples: faults are found at once, honest syncs are never blamed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from otel_rl.analyses.weights.comparison import Weights, WeightsVerdict
from otel_rl.analyses.weights.rounding import FORMATS, rounded
from otel_rl.export import Event
from otel_rl.recorder.devices.sampling import Sampler
from otel_rl.recorder.journal.records import ENGINE, TRAINER, Fingerprint
from tests.real_parts import needs, part
from tests.recorder.agent.reducing import feed, reducing, started

torch = part("torch")
pytestmark = needs("torch")

LAYERS = 12
Model = dict[str, Any]


def model(seed: int = 0, dtype: str = "float32") -> Model:
    """Return the weights of a tiny transformer."""
    dice = torch.Generator().manual_seed(seed)
    found = {"embed.weight": torch.randn(64, 16, generator=dice), "norm.weight": torch.ones(16)}
    for n in range(LAYERS):
        for name, shape in (("q", (16, 16)), ("o", (16, 16)), ("up", (48, 16)), ("down", (16, 48))):
            found[f"layers.{n}.{name}.weight"] = 0.02 * torch.randn(*shape, generator=dice)
    return {name: tensor.to(getattr(torch, dtype)) for name, tensor in found.items()}


def moved(weights: Model, seed: int, size: float = 1e-2) -> Model:
    """Return the weights after a step of the optimizer."""
    dice = torch.Generator().manual_seed(seed)
    return {name: one + size * torch.randn(one.shape, generator=dice) for name, one in weights.items()}


def cast(weights: Model, dtype: str) -> Model:
    return {name: one.to(getattr(torch, dtype)) for name, one in weights.items()}


def fingerprint(version: int, weights: Any, side: str = TRAINER) -> Fingerprint:
    """Return what a process records."""
    refused: list[object] = []

    def refuse(*what: object) -> None:
        refused.append(what)

    def on_device(_: object) -> None:
        raise AssertionError

    tensors = Sampler(refuse).sample(weights, on_device)
    assert refused == []
    return Fingerprint(version, 1, side, None, tensors)


def verdicts(*records: tuple[str, Fingerprint]) -> list[WeightsVerdict]:
    found = Weights()
    return [one for journal, record in records for one in found.add(journal, 0, record)]


def trained(version: int, weights: Any, rank: int = 0) -> tuple[str, Fingerprint]:
    return f"rank{rank}", fingerprint(version, weights)


def served(version: int, weights: Any, engine: int = 0) -> tuple[str, Fingerprint]:
    return f"rollout{engine}", fingerprint(version, weights, ENGINE)


V11 = model()
V12 = moved(V11, 1)


def test_an_honest_sync() -> None:
    """Nothing is said about an engine that holds the trainer's weights, also in another dtype."""
    assert verdicts(trained(11, V11), served(11, V11), trained(12, V12), served(12, cast(V12, "bfloat16"))) == []


def test_a_sync_that_did_not_happen() -> None:
    """The engine says 12 and holds 11; tensor, both values and the version it holds are named."""
    (found,) = verdicts(trained(11, V11), trained(12, V12), served(12, cast(V11, "bfloat16")))

    assert (found.journal, found.side, found.version, found.holds, found.is_whole) == ("rollout0", ENGINE, 12, 11, True)
    assert (found.tensor, found.dtype) == ("embed.weight", "bfloat16")
    assert rounded(found.expected, "bfloat16") != found.value
    assert found.message("rollout 0").startswith(
        "version 12 of rollout 0 holds the weights of version 11: embed.weight"
    )


def test_a_tensor_that_was_skipped() -> None:
    """One of 50 tensors is of the version before."""
    held = V12 | {"layers.7.up.weight": V11["layers.7.up.weight"]}
    (found,) = verdicts(trained(11, V11), trained(12, V12), served(12, cast(held, "bfloat16")))

    assert (found.tensor, found.holds, found.is_whole) == ("layers.7.up.weight", 11, False)
    assert (found.differing, found.compared) == (1, len(V12))
    assert "1 of 50 tensors of version 12 of rollout 0 are still those of version 11" in found.message("rollout 0")


def test_half_a_sync() -> None:
    """The second half of the tensors is old."""
    names = list(V12)
    held = V12 | {name: V11[name] for name in names[25:]}
    (found,) = verdicts(trained(11, V11), trained(12, V12), served(12, held))

    assert (found.tensor, found.differing, found.holds, found.is_whole) == (names[25], 25, 11, False)


def test_an_adapter_that_was_not_merged() -> None:
    """The engine has the base weights of the layers that LoRA changes, and no version of the trainer has them."""
    base = model(5)
    merged = {name: one + 0.1 if ".q." in name else one for name, one in base.items()}
    (found,) = verdicts(trained(3, merged), served(3, cast(base, "bfloat16")))

    assert (found.tensor, found.differing, found.holds) == ("layers.0.q.weight", LAYERS, None)


def shard(weights: Model, rank: int, of: int, dim: int = 0) -> list[tuple[Any, ...]]:
    """Return a part of each tensor, as tensor parallelism splits it, with the shape of the whole and its begin."""
    found = []
    for name, one in weights.items():
        along = dim if one.ndim > dim else 0
        size = one.shape[along] // of
        first = [0] * one.ndim
        first[along] = rank * size
        found.append((name, one.narrow(along, rank * size, size), tuple(one.shape), first))
    return found


@pytest.mark.parametrize("dim", [0, 1])
def test_shards(dim: int) -> None:
    """Four shards of the trainer and two of engines, in any order: nothing is said."""
    records = [trained(12, shard(V12, rank, 4), rank) for rank in range(4)]
    records += [served(12, shard(cast(V12, "bfloat16"), rank, 2, dim), rank) for rank in range(2)]
    for seed in range(20):
        random.Random(seed).shuffle(records)
        assert verdicts(*records) == []


def test_a_wrong_shard() -> None:
    """An engine that holds the other half of each tensor is found, whichever process was first."""
    wrong = [
        (name, one, shape, first)
        for (name, one, _, _), (_, _, shape, first) in zip(shard(V12, 1, 2), shard(V12, 0, 2), strict=True)
    ]
    records = [*(trained(12, shard(V12, rank, 4), rank) for rank in range(4)), served(12, wrong)]
    for order in (records, records[::-1]):
        (found,) = verdicts(*order)
        assert (found.journal, found.holds) == ("rollout0", None)


def test_ranks_with_the_same_names_for_other_tensors() -> None:
    """As in pipeline and tensor parallelism without placements: an engine may hold any of them, and nothing else."""
    stages = [trained(12, moved(V12, n), n) for n in range(4)]
    assert verdicts(*stages, *(served(12, cast(moved(V12, n), "bfloat16"), n) for n in range(4))) == []
    (found,) = verdicts(*stages, served(12, moved(V12, 9)))

    assert (found.differing, found.compared, found.holds) == (len(V12), len(V12), None)


def test_versions_that_begin_again() -> None:
    """A trainer that counts from 0 again in one attempt is compared as before."""
    records = [trained(n, moved(V11, n)) for n in range(20)]
    (found,) = verdicts(*records, trained(0, V12), served(0, V11))

    assert found.version == 0


def test_what_cannot_be_compared() -> None:
    """Other shapes, fused names and packed integers are not blamed."""
    padded = V12 | {"embed.weight": torch.cat([V12["embed.weight"], torch.zeros(2, 16)])}
    fused = {name.replace("q.weight", "qkv.weight"): one for name, one in padded.items()}
    packed = {name: one.to(torch.int8) if one.ndim == 2 else one for name, one in fused.items()}

    assert verdicts(trained(12, V12), served(12, padded), served(12, fused, 1), served(12, packed, 2)) == []


def test_a_wrapped_model() -> None:
    """Names of `torch.compile`, FSDP, checkpointing and DDP are those of the model itself."""
    wrapped = {
        f"module._orig_mod.{name.replace('layers.', 'layers._fsdp_wrapped_module.')}": one for name, one in V11.items()
    }
    (found,) = verdicts(trained(11, V11), trained(12, V12), served(12, wrapped))

    assert found.holds == 11


def test_changes_smaller_than_the_precision_of_the_engine() -> None:
    """The engine's samples stay equal, the trainer's move: it is said once, and is not a divergence."""
    versions = [V11]
    for n in range(4):
        versions.append({name: one * (1 + 1e-6) for name, one in versions[n].items()})
    half = cast(V11, "bfloat16")
    records = [one for n, weights in enumerate(versions) for one in (trained(n, weights), served(n, half))]
    kinds = [(one.kind, one.version, one.holds) for one in verdicts(*records)]

    assert kinds == [("rounded", 1, 0)]


def test_fp8_with_scales() -> None:
    """Numbers that are multiplied by an unknown scale are not blamed; without scales, a skipped tensor is."""
    name = "float8_e4m3fn"
    scaled = {n: (one / (one.abs().max() / 448)).to(torch.float8_e4m3fn) for n, one in V12.items() if one.ndim == 2}
    skipped = cast(V12, name) | {"layers.3.up.weight": V11["layers.3.up.weight"].to(torch.float8_e4m3fn)}
    assert verdicts(trained(12, V12), served(12, scaled)) == []
    (found,) = verdicts(trained(12, V12), served(12, skipped))

    assert found.tensor == "layers.3.up.weight"


def test_a_fault_that_stays_is_said_once() -> None:
    """An engine that is one version behind for ten syncs, is well for two, and is behind again: two verdicts."""
    versions = [moved(V11, n) for n in range(14)]
    records = [trained(0, versions[0])]
    for n in range(1, 14):
        held = versions[n] if n in (10, 11) else versions[n - 1]
        records += [trained(n, versions[n]), served(n, held)]

    assert [(one.version, one.holds) for one in verdicts(*records)] == [(1, 0), (12, 11)]


def test_an_engine_that_is_stuck_is_said_once() -> None:
    """It is ever more versions behind, until nobody remembers the one that it holds."""
    versions = [moved(V11, n) for n in range(14)]
    records = [record for n in range(14) for record in (trained(n, versions[n]), served(n, versions[min(n, 2)]))]

    assert [(one.version, one.holds) for one in verdicts(*records)] == [(3, 2)]


DTYPES = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("seed", range(10))
def test_honest_syncs_are_never_blamed(seed: int) -> None:
    """1,000 random syncs in all: any dtypes on both sides and in between, any sizes of weights, shards everywhere."""
    dice = random.Random(seed)
    for _ in range(100):
        size = 10.0 ** dice.uniform(-7, 3)
        weights = {name: one.double() * size for name, one in [*model(dice.randrange(1 << 30)).items()][:8]}
        trainer = cast(weights, dice.choice(DTYPES[:4]))
        held = trainer
        for dtype in (dice.choice(DTYPES[:4]), dice.choice(DTYPES)):
            held = cast(held, dtype)
        ranks, engines = dice.choice((1, 2, 4)), dice.choice((1, 2))
        records = [trained(7, shard(trainer, n, ranks), n) for n in range(ranks)]
        records += [served(7, shard(held, n, engines, 1), n) for n in range(engines)]
        dice.shuffle(records)
        assert verdicts(*records) == [], (seed, size)


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_is_that_of_torch(dtype: str) -> None:
    """Over all sizes, with subnormal and too large numbers, which torch makes infinite or NaN."""
    dice = torch.Generator().manual_seed(3)
    sizes = 10.0 ** torch.linspace(-12, 7, 4000)
    values = (sizes * torch.randn(4000, generator=dice)).float()
    known = FORMATS[dtype]
    for value, expected in zip(values.tolist(), values.to(getattr(torch, dtype)).double().tolist(), strict=True):
        found = rounded(value, dtype)
        assert found == expected or (abs(found) > known.largest and not abs(expected) < known.largest), value


def test_the_event_of_a_divergence() -> None:
    """It names the process, the version and the tensor; of an engine that was faster than the trainer too."""
    reducer = reducing()
    feed(reducer, "rank0", started())
    feed(reducer, "rollout1", started(1, role="rollout"))
    feed(reducer, "rank0", fingerprint(11, V11))
    feed(reducer, "rollout1", fingerprint(12, V11, ENGINE))
    (event,) = [one for one in feed(reducer, "rank0", fingerprint(12, V12)) if isinstance(one, Event)]

    assert (event.name, event.rank, event.attributes["rl.role"]) == ("rl.policy.diverged", 1, "rollout")
    assert event.attributes["rl.policy.version"] == 12
    assert event.attributes["rl.weights.held_version"] == 11
    assert event.attributes["rl.weights.tensor"] == "embed.weight"
    outcomes = {
        dict(point.attributes)["rl.weights.outcome"]: point.value
        for point in reducer.analyses.by_name["weights"].points()
    }
    assert outcomes == {"diverged": len(V12)}
