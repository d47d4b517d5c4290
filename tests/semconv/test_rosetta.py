"""The dialects of the five frameworks that the acceptance list is of: each of its rows has a meaning and a way back."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.semconv import registry
from otel_rl.semconv.dialect import Reading, dialect, factor, placeholders
from otel_rl.semconv.frameworks import DIALECTS
from otel_rl.semconv.generate import prometheus_name
from otel_rl.stats import statistics

SEEDS = {
    "000 Tunix": "tunix",
    "001 ROLL": "roll",
    "002 MaxEnt-GRPO": "maxent_grpo",
    "003 Trinity-RFT": "trinity",
    "004 NeMo-RL": "nemo_rl",
}
DATA = Path(__file__).parent.parent / "data"


class Facts(msgspec.Struct, forbid_unknown_fields=True):
    """The lists that the acceptance list is compared with. The file explains each part."""

    examples: dict[str, str]
    units: dict[str, str]
    aliases: dict[str, list[list[str]]]
    drift: dict[str, dict[str, str]]
    same: list[dict[str, str]]


FACTS = msgspec.yaml.decode((DATA / "rosetta.yaml").read_bytes(), type=Facts)


class Row(NamedTuple):
    """One row of the acceptance list, with examples in its name."""

    name: str
    unit: str
    kind: str
    meaning: str


def rows(framework: str) -> list[Row]:
    """Return the rows of one framework."""
    with (DATA / "metrics.csv").open() as file:
        return [
            Row(
                re.sub(r"<\w+>|\{\w+\}", lambda part: FACTS.examples[part[0]], row["metric_name_pattern"]),
                row["unit"],
                row["kind"],
                row["meaning"],
            )
            for row in csv.DictReader(file)
            if SEEDS[row["seed"].removesuffix(" (repo)")] == framework
        ]


def readings(framework: str) -> dict[str, Reading]:
    """Return what the rows of one framework mean, where they mean something."""
    known = dialect(framework)
    return {row.name: reading for row in rows(framework) if (reading := known.read(row.name)) is not None}


def point(framework: str, name: str, value: float = 0.25) -> tuple[str, dict[str, str | int], float]:
    """Return the metric, the attributes and the value in the registry's unit that a logged value becomes."""
    reading = dialect(framework).read(name)
    assert reading is not None, f"{framework} does not know {name}"
    return reading.metric, dict(reading.attributes), value * reading.factor


def decided(framework: str) -> dict[str, str]:
    """Return for each row how it is treated: mapped, a phase, or why it is left as it is; else empty."""
    known = dialect(framework)
    return {
        row.name: "mapped"
        if known.read(row.name)
        else "phase"
        if row.kind == "span" and row.name in known.phases
        else known.passes(row.name) or ("any other metric" if row.meaning.endswith("(family prefix)") else "")
        for row in rows(framework)
    }


def same_unit(given: str, wanted: str) -> bool:
    """Tell whether two units measure in the same thing; what is counted is a 1 with an annotation."""
    plain = {"": "1", "nat": "1", "nat/{token}": "1", "1/{token}": "1"}
    one, other = plain.get(given, given), plain.get(wanted, wanted)
    return one == other or (one == "1" and re.fullmatch(r"\{\w+\}", other) is not None)


def test_the_list_is_whole() -> None:
    """All 645 rows belong to one of the five frameworks."""
    assert sum(len(rows(framework)) for framework in SEEDS.values()) == 645


@pytest.mark.parametrize("framework", SEEDS.values())
def test_every_row_is_decided(framework: str) -> None:
    """Each row is mapped, is the name of a phase, or is left as it is for a reason."""
    assert [name for name, how in decided(framework).items() if not how] == []


@pytest.mark.parametrize("framework", SEEDS.values())
def test_only_text_families_and_steps_are_left(framework: str) -> None:
    """Every named number is mapped, except step numbers and OpenTelemetry's own names."""
    how = decided(framework)
    numbers = [row.name for row in rows(framework) if row.kind != "text" and how[row.name] not in ("mapped", "phase")]
    allowed = ("number of the step", "any other metric", "what an operator", "the axis", "OpenTelemetry's", "name of a")

    assert [name for name in numbers if not how[name].startswith(allowed)] == []


@pytest.mark.parametrize("framework", SEEDS.values())
def test_every_reading_leads_back(framework: str) -> None:
    """From the metric and its attributes the identical name follows, at the place that the reading says."""
    known = dialect(framework)
    back = {
        name: known.spellings(reading.metric, dict(reading.attributes))[reading.alias]
        for name, reading in readings(framework).items()
    }

    assert {name: again for name, again in back.items() if name != again} == {}


@pytest.mark.parametrize("framework", SEEDS.values())
def test_readings_are_of_the_registry(framework: str) -> None:
    """A metric that a name means is described, with all its attributes."""
    undescribed = {
        name: set(dict(reading.attributes)) - set(registry.metrics()[reading.metric].attribute_names)
        for name, reading in readings(framework).items()
    }

    assert {name: missing for name, missing in undescribed.items() if missing} == {}


@pytest.mark.parametrize("framework", SEEDS.values())
def test_units_are_converted(framework: str) -> None:
    """A value in the unit of the list becomes one in the registry's unit."""
    wrong = []
    for row in rows(framework):
        if (reading := dialect(framework).read(row.name)) is None:
            continue
        unit, wanted = FACTS.units.get(row.name, row.unit), registry.metrics()[reading.metric].unit
        expected = 1.0 if same_unit(unit, wanted) else factor(unit, wanted)
        if reading.factor != expected:
            wrong.append((row.name, unit, wanted, reading.factor))

    assert wrong == []


@pytest.mark.parametrize("framework", SEEDS.values())
def test_reducers_exist(framework: str) -> None:
    """How ranks are reduced is a statistic, where the dialect or the registry says it."""
    reducers = {name: reading.reduce for name, reading in readings(framework).items() if reading.reduce}

    assert {name: each for name, each in reducers.items() if not statistics.is_statistic(each)} == {}


@pytest.mark.parametrize("framework", SEEDS.values())
def test_maxima_minima_and_learning_rates_are_not_averaged(framework: str) -> None:
    """Names that say so are reduced by it, and learning rates and coefficients take the last value."""
    found = readings(framework)
    extremes = {n: r for n, r in found.items() if dict(r.attributes).get("rl.statistic") in ("max", "min")}
    rates = {name: reading for name, reading in found.items() if reading.metric == "rl.train.learning_rate"}

    assert {n for n, r in extremes.items() if r.reduce != dict(r.attributes)["rl.statistic"]} == set()
    assert {name for name, reading in rates.items() if reading.reduce != "last"} == set()


@pytest.mark.parametrize("framework", SEEDS.values())
def test_only_aliases_share_a_point(framework: str) -> None:
    """Two rows of a framework that become the same point are two names of one number."""
    points = defaultdict(list)
    for name, reading in readings(framework).items():
        points[reading.metric, reading.attributes].append(name)
    shared = {frozenset(names) for names in points.values() if len(names) > 1}

    assert shared == {frozenset(names) for names in FACTS.aliases[framework]}


@pytest.mark.parametrize("framework", SEEDS.values())
def test_every_pattern_reads_its_own_example(framework: str) -> None:
    """No pattern is hidden behind another one."""
    known = dialect(framework)
    examples = {
        pattern: re.sub(r"\{(\w+)\}", lambda part: placeholders()[part[1]].example, pattern)
        for pattern in known.patterns
    }
    hidden = {pattern for pattern, name in examples.items() if known.pattern(name) != pattern}

    assert hidden == set()
    assert [name for name in examples.values() if known.read(name) is None] == []


@pytest.mark.parametrize("framework", DIALECTS)
def test_phases_have_one_name_each(framework: str) -> None:
    """A dialect has one name for a phase, so that there is a way back."""
    twice = [phase for phase, count in Counter(dialect(framework).phases.values()).items() if count > 1]

    assert twice == []


@pytest.mark.parametrize("framework", DIALECTS)
def test_our_names_of_phases_are_not_theirs(framework: str) -> None:
    """A framework that calls a phase `gen` does not also use `generate`: such a name would read back as another one."""
    known = dialect(framework)
    foreign = set(known.phases.values()) - set(known.phases)
    alone = [pattern for pattern in known.patterns if re.findall(r"\{(\w+)\}", pattern) == ["phase"]]
    names = {pattern.replace("{phase}", phase): pattern for pattern in alone for phase in foreign}

    assert [name for name, p in names.items() if known.pattern(name) == p and known.read(name) is not None] == []


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("verl", "timing_s/generate"),
        ("trinity", "eval/gsm8k/accuracy/mean@04"),
        ("nemo_rl", "ray/node.00.gpu.1.util"),
    ],
)
def test_a_name_without_a_way_back_means_nothing(framework: str, name: str) -> None:
    """It is left as it is, and reading it does not fail."""
    assert dialect(framework).read(name) is None


@given(data=st.data(), framework=st.sampled_from(sorted(DIALECTS)))
def test_what_is_read_leads_back(data: st.DataObject, framework: str) -> None:
    """Whatever stands for the parts of a name, reading it does not fail, and what it means leads back to it."""
    known = dialect(framework)
    part = st.sampled_from(["generate", "gen", "mean", "p05", "04", "4", "a/b", "mean@4", "actor", ""]) | st.text(
        max_size=4
    )
    pattern = data.draw(st.sampled_from(known.patterns))
    name = re.sub(r"\{\w+\}", lambda _: data.draw(part), pattern)
    reading = known.read(name)

    assert reading is None or known.spellings(reading.metric, dict(reading.attributes))[reading.alias] == name


@pytest.mark.parametrize(
    ("framework", "now", "before"),
    [(framework, now, before) for framework, names in FACTS.drift.items() for now, before in names.items()],
)
def test_old_and_new_names_are_one_point(framework: str, now: str, before: str) -> None:
    """A number has the same meaning under both names, and the present one is the usual one."""
    meaning = dialect(framework).read(now)
    assert meaning is not None
    names = dialect(framework).spellings(meaning.metric, dict(meaning.attributes))

    assert point(framework, before) == point(framework, now)
    assert names.index(now) < names.index(before)


@pytest.mark.parametrize("names", FACTS.same, ids=lambda names: next(iter(names.values())))
def test_frameworks_meet_in_the_same_points(names: dict[str, str]) -> None:
    """The same number under the names of several frameworks is one point."""
    points = {framework: point(framework, name) for framework, name in names.items()}

    assert len({repr(each) for each in points.values()}) == 1, points


def test_units_meet_in_the_same_value() -> None:
    """Gibibytes of one framework are the bytes of another one, and per cent the fractions."""
    assert point("trinity", "perf/max_memory_allocated_gb", 2.0) == point(
        "roll", "system/max_memory_allocated", 2.0**31
    )
    assert point("nemo_rl", "rl.efficiency.pct", 40.0)[2] == pytest.approx(0.4)
    assert point("trinity", "timing_per_token_ms/gen", 4.0)[2] == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("logged", "name"),
    [
        ("rewards/train/mean", "rewards/mean"),
        ("rewards/train/score/max", "rewards/score/max"),
        ("generation/train/completions/mean_length", "generation/completions/mean_length"),
        ("actor/train/loss", "loss"),
        ("actor/train/loss/entropy", "loss/entropy"),
        ("critic/train/vpred_mean", "vpred_mean"),
        ("global/train/actor_dequeue_time", "actor_dequeue_time"),
        ("perf/train/sum/rollout_time", "perf/sum/rollout_time"),
    ],
)
def test_tunix_backends_see_the_same_points(logged: str, name: str) -> None:
    """Backends get the mode in the name; it is the same number."""
    assert point("tunix", logged) == point("tunix", name)


def test_evaluation_is_apart_from_training() -> None:
    """The mode `eval` of Tunix and the prefix `validation` of NeMo RL lead to points of their own."""
    assert point("tunix", "actor/eval/loss")[1]["rl.split"] == "validation"
    assert point("tunix", "rewards/eval/score/mean")[1]["rl.split"] == "validation"
    assert point("nemo_rl", "validation/accuracy")[0] == "rl.eval.score"


def test_sums_of_a_trajectory_are_no_sums_of_ranks() -> None:
    """Tunix adds up reward functions and means over samples; ROLL's shares add up over ranks."""
    reduced = {name: dialect("tunix").read(name) for name in ("rewards/sum", "trajectory_rewards/sum")}
    share = dialect("roll").read("actor/pg_loss")

    assert {name: reading.reduce for name, reading in reduced.items() if reading} == dict.fromkeys(reduced, "mean")
    assert share is not None
    assert share.reduce == "sum"


def test_names_stay_apart_when_they_are_sanitised() -> None:
    """Neither dots that become underscores nor units that become suffixes make two metrics one."""
    plain = Counter(re.sub(r"\W", "_", name) for name in registry.metrics())
    scraped = Counter(prometheus_name(metric) for metric in registry.metrics().values())

    assert [name for name, count in (plain + scraped).items() if count > (name in plain) + (name in scraped)] == []


def test_coverage() -> None:
    """Every row of every framework is decided; `pytest -s` shows how."""
    lines = [f"{'framework':12}{'rows':>6}{'mapped':>8}{'phases':>8}{'passing':>9}"]
    for framework in SEEDS.values():
        how = decided(framework)
        counts = Counter(each if each in ("mapped", "phase") else "passing" for each in how.values())
        lines += [f"{framework:12}{len(how):>6}{counts['mapped']:>8}{counts['phase']:>8}{counts['passing']:>9}"]
        lines += [f"{'':14}{name}: {why}" for name, why in how.items() if why not in ("mapped", "phase")]

        assert len(how) == len(rows(framework))
        assert all(how.values())

    sys.stdout.write("\n" + "\n".join(lines) + "\n")
