"""The dialects: each name that a framework logs, and each row of the acceptance list, has a meaning and a way back."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.stats import statistics
from otel_rl.semconv import registry
from otel_rl.semconv.dialect import Reading, dialect, factor, placeholders
from otel_rl.semconv.frameworks import dialects
from otel_rl.semconv.registry import prometheus_name
from tests.semconv.names import ACCEPTED, CAPTURED, DATA, FACTS, FRAMEWORKS, captured, logged, rows

STRANGE = ("generate", "weight_sync", "step", "mean@08", "node.00.gpu.01.util", "p99.9", "", "{phase}", "\n")
PATTERNS = tuple(dict.fromkeys(pattern for framework in dialects() for pattern in dialect(framework).patterns))
PARTS = ("gen", "mean", "p05", "04", "4", "a/b", "mean@4", "actor", *STRANGE)


def readings(framework: str) -> dict[str, Reading]:
    """Return what the names of one framework mean, where they mean something."""
    known = dialect(framework)
    return {name: reading for name in logged(framework) if (reading := known.read(name)) is not None}


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
    assert sum(len(rows(framework)) for framework in ACCEPTED) == 645


@pytest.mark.parametrize("framework", ACCEPTED)
def test_every_row_is_decided(framework: str) -> None:
    """Each row is mapped, is the name of a phase, or is left as it is for a reason."""
    assert [name for name, how in decided(framework).items() if not how] == []


@pytest.mark.parametrize("framework", ACCEPTED)
def test_only_text_families_and_steps_are_left(framework: str) -> None:
    """Every named number is mapped, except step numbers and OpenTelemetry's own names."""
    how = decided(framework)
    numbers = [row.name for row in rows(framework) if row.kind != "text" and how[row.name] not in ("mapped", "phase")]
    allowed = ("number of the step", "any other metric", "what an operator", "the axis", "OpenTelemetry's", "name of a")

    assert [name for name in numbers if not how[name].startswith(allowed)] == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_reading_leads_back(framework: str) -> None:
    """From the metric and its attributes the identical name follows, at the place that the reading says."""
    known = dialect(framework)
    back = {
        name: known.spellings(reading.metric, dict(reading.attributes))[reading.alias]
        for name, reading in readings(framework).items()
    }

    assert {name: again for name, again in back.items() if name != again} == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_readings_are_of_the_registry(framework: str) -> None:
    """A metric that a name means is a gauge or a total that is described, with all its attributes."""
    kinds = {registry.metrics()[reading.metric].instrument for reading in readings(framework).values()}
    undescribed = {
        name: set(dict(reading.attributes)) - set(registry.metrics()[reading.metric].attribute_names)
        for name, reading in readings(framework).items()
    }

    assert kinds <= {"gauge", "counter", "updowncounter"}
    assert {name: missing for name, missing in undescribed.items() if missing} == {}


@pytest.mark.parametrize("framework", ACCEPTED)
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


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_reducers_exist(framework: str) -> None:
    """How ranks are reduced is a statistic, where the dialect or the registry says it."""
    reducers = {name: reading.reduce for name, reading in readings(framework).items() if reading.reduce}

    assert {name: each for name, each in reducers.items() if not statistics.is_statistic(each)} == {}


@pytest.mark.parametrize("framework", ACCEPTED)
def test_maxima_minima_and_learning_rates_are_not_averaged(framework: str) -> None:
    """Names that say so are reduced by it, and learning rates and coefficients take the last value."""
    found = readings(framework)
    extremes = {n: r for n, r in found.items() if dict(r.attributes).get("rl.statistic") in ("max", "min")}
    rates = {name: reading for name, reading in found.items() if reading.metric == "rl.train.learning_rate"}

    assert {n for n, r in extremes.items() if r.reduce != dict(r.attributes)["rl.statistic"]} == set()
    assert {name for name, reading in rates.items() if reading.reduce != "last"} == set()


@pytest.mark.parametrize("framework", ACCEPTED)
def test_only_aliases_share_a_point(framework: str) -> None:
    """Two rows of a framework that become the same point are two names of one number."""
    found, points = readings(framework), defaultdict(list)
    for name in dict.fromkeys(row.name for row in rows(framework) if row.name in found):
        points[found[name].metric, found[name].attributes].append(name)
    shared = {frozenset(names) for names in points.values() if len(names) > 1}

    assert shared == {frozenset(names) for names in FACTS.aliases[framework]}


@pytest.mark.parametrize("framework", ACCEPTED)
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


@pytest.mark.parametrize("framework", dialects())
def test_phases_have_one_name_each(framework: str) -> None:
    """A dialect has one name for a phase, so that there is a way back."""
    twice = [phase for phase, count in Counter(dialect(framework).phases.values()).items() if count > 1]

    assert twice == []


@pytest.mark.parametrize("framework", dialects())
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


@given(data=st.data(), framework=st.sampled_from(sorted(dialects())))
def test_what_is_read_leads_back(data: st.DataObject, framework: str) -> None:
    """Whatever stands for the parts of a name, also of another framework, what it means leads back to it."""
    known = dialect(framework)
    part = st.sampled_from(PARTS) | st.text(max_size=4)
    pattern = data.draw(st.sampled_from(PATTERNS))
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


@pytest.mark.parametrize("framework", CAPTURED)
def test_every_name_is_mapped_or_left_with_a_reason(framework: str) -> None:
    """Each name that the framework logs is either mapped or passed, with a reason."""
    known = dialect(framework)

    assert [name for name in captured(framework) if known.read(name) is None and not known.passes(name)] == []


@pytest.mark.parametrize("framework", CAPTURED)
def test_names_were_read_in_code_of_a_known_version(framework: str) -> None:
    """Each list of names begins with where it comes from, and holds no name twice."""
    names = captured(framework)

    assert (DATA / "names" / f"{framework}.txt").read_text().startswith("# ")
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("framework", "name", "logged", "canonical"),
    [
        ("verl", "perf/max_memory_allocated_gb", 2.0, 2.0 * 2**30),
        ("verl", "perf/cpu_memory_used_gb", 0.5, 2.0**29),
        ("verl", "timing_per_token_ms/gen", 4.0, 0.004),
        ("verl", "timing_s/gen", 4.0, 4.0),
        ("trl", "scoring_time_ms", 250.0, 0.25),
        ("openrlhf", "train/dynamic_filtering_pass_rate", 40.0, 0.4),
        ("skyrl", "ray/node.0.gpu.3.util", 80.0, 0.8),
        ("skyrl", "ray/node.0.gpu.3.mem_used_gb", 1.0, 2.0**30),
        ("nemo_lens", "rl.generation.duration_ms", 1500.0, 1.5),
        ("nemo_lens", "gym.verify.duration_ms", 20.0, 0.02),
    ],
)
def test_values_become_the_registry_s_unit(framework: str, name: str, logged: float, canonical: float) -> None:
    """Gibibytes become bytes, milliseconds seconds, and per cent parts of one."""
    assert point(framework, name, logged)[2] == pytest.approx(canonical)


def test_validation_keeps_the_data_source_whole() -> None:
    """The name of a data set may have a slash, as on the Hugging Face hub."""
    expected = {
        "rl.eval.suite": "eval",
        "rl.eval.task": "openai/gsm8k",
        "rl.eval.metric": "acc",
        "rl.eval.statistic": "best",
        "rl.eval.k": 8,
        "rl.statistic": "mean",
    }

    assert point("verl", "val-core/openai/gsm8k/acc/best@8/mean", 0.5) == ("rl.eval.score", expected, 0.5)


@pytest.mark.parametrize("framework", CAPTURED)
def test_names_of_evaluations_are_apart_from_training(framework: str) -> None:
    """No name of an evaluation falls on the point of a training metric."""
    apart = {"rl.eval.suite", "rl.split"}
    readings = {name: dialect(framework).read(name) for name in captured(framework)}
    others = {(r.metric, r.attributes) for name, r in readings.items() if r and not name.startswith(("eval", "val-"))}
    evaluations = [r for name, r in readings.items() if r and name.startswith(("eval", "val-"))]

    assert all({key for key, _ in r.attributes} & apart or r.metric == "rl.phase.time" for r in evaluations)
    assert [r for r in evaluations if (r.metric, r.attributes) in others and r.metric != "rl.phase.time"] == []


def test_learning_rates_take_the_last_value_and_maxima_the_highest() -> None:
    """How ranks are reduced follows from the metric, or from the statistic in the name."""
    reduced = {
        name: reading.reduce
        for name in ("actor/lr", "critic/score/max", "timing_s/gen", "actor/pg_loss", "rollout_corr/training_ppl")
        if (reading := dialect("verl").read(name)) is not None
    }

    assert reduced == {
        "actor/lr": "last",
        "critic/score/max": "max",
        "timing_s/gen": "max",
        "actor/pg_loss": "",
        "rollout_corr/training_ppl": "geomean",
    }
