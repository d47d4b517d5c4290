"""Settings: precedence, and errors of invalid ones."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otel_rl
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.settings.loading import known_settings, load
from otel_rl.recorder.settings.settings import FOR_OPERATORS, GROUPS, ExporterSpec, Hardware, Rows, Settings
from tests.ids import shown
from tests.processes import run_python

ALONE = {"id": "run-7"}
PEERS = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "job7"}


class Factory:
    """An exporter that a user brings along."""

    @classmethod
    def make(cls, run: object) -> Factory:
        """Make one."""
        return cls()


def make(run: object) -> Factory:
    return Factory()


a_lambda = lambda run: Factory()  # noqa: E731


def refusal(keywords: Mapping[str, object], environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(ALONE | dict(keywords), environ or {})
    return str(caught.value)


# Precedence


def test_defaults() -> None:
    """Without any setting a lone process records into `runs`, under an id of its own."""
    first, second = load({}, {}), load({}, {})

    assert first.id != second.id
    assert first.name == first.id
    assert (first.dir, first.rank, first.world_size) == ("runs", 0, 1)
    assert first.exporters == (ExporterSpec("jsonl"),)


@pytest.mark.parametrize(
    ("keywords", "environ", "file", "expected"),
    [
        ({"rank": 1}, {"OTEL_RL_RANK": "2"} | PEERS, "rank = 3", 1),
        ({}, {"OTEL_RL_RANK": "2"} | PEERS, "rank = 3", 2),
        ({}, PEERS, "rank = 3", 3),
        ({}, PEERS, "", 5),
        ({}, {}, "", 0),
        ({"rank": None}, PEERS, "", 5),
        ({"rank": 0}, PEERS, "rank = 3", 0),
    ],
)
def test_precedence(keywords: dict[str, object], environ: dict[str, str], file: str, expected: int) -> None:
    """A keyword wins over the environment, that over the file, that over the launcher, that over the default."""
    Path("otel-rl.toml").write_text(file)

    assert expected == load(keywords, environ).rank


@pytest.mark.parametrize(
    ("more", "environ", "expected"),
    [
        ({}, {}, 2),
        ({}, {"OTEL_RL_LOCAL_WORLD_SIZE": "1"}, 1),
        ({"head": "node0:4320"}, {}, 0),
        ({}, {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "1"}, 1),
    ],
)
def test_ranks_on_this_machine(more: dict[str, object], environ: dict[str, str], expected: int) -> None:
    """All ranks, unless a variable or a launcher says otherwise, or a head gets the rows of several machines."""
    assert load({"rank": 0, "world_size": 2, "id": "i"} | more, environ).local_world_size == expected


def test_launcher() -> None:
    """The launcher alone is enough for several ranks."""
    settings = load({}, PEERS)

    assert (settings.rank, settings.world_size, settings.local_world_size) == (5, 16, 4)
    assert settings.id.startswith("torchrun-")


def test_every_setting_has_a_variable() -> None:
    """Each setting can be given in the environment, under its own name and that of its group."""
    plain = set(Settings.__struct_fields__) - set(GROUPS)
    grouped = {f"{name}_{field}" for name, group in GROUPS.items() for field in group.__struct_fields__}
    variables = {f"OTEL_RL_{name.upper()}" for name in (plain | grouped) - {"id", "hardware_enabled", "output_enabled"}}
    named = {"OTEL_RL_RUN_ID", "OTEL_RL_HARDWARE", "OTEL_RL_OUTPUT"}

    assert {one.variable for one in known_settings().values()} == variables | named


def test_keywords() -> None:
    """The signature of `init` has the settings of a training, alone or in its group."""
    keywords = [one.name for one in inspect.signature(otel_rl.init).parameters.values() if one.kind is one.KEYWORD_ONLY]

    assert set(keywords) == {*Settings.__struct_fields__, "config"} - set(FOR_OPERATORS)
    assert len(keywords) == 17


def test_the_other_settings_are_keywords_too(tmp_path: Path) -> None:
    """`init` takes each setting for operators by its name."""
    others = {name: getattr(Settings(local_dir=str(tmp_path)), name) for name in FOR_OPERATORS}
    run = otel_rl.init(project="p", dir=tmp_path, exporters=[], **others | {"agent": "off", "quiet": True})
    run.finish()

    assert set(others) == set(FOR_OPERATORS)
    assert str(run.dir).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("OTEL_RL_PROJECT", "grpo", "grpo"),
        ("OTEL_RL_RUN_ID", "run-8", "run-8"),
        ("OTEL_RL_LOCAL_WORLD_SIZE", "8", 8),
        ("OTEL_RL_EXPORTERS", "jsonl, wandb", (ExporterSpec("jsonl"), ExporterSpec("wandb"))),
        ("OTEL_RL_EXPORTERS", "none", ()),
        ("OTEL_RL_EXPORTERS", "", (ExporterSpec("jsonl"),)),
        ("OTEL_RL_RANK", "", 0),
        ("OTEL_RL_PROJCT", "", None),
        ("OTEL_RL_SET_GLOBAL", "YES", True),
        ("OTEL_RL_HARDWARE", "Off", False),
        ("OTEL_RL_REDUCE", "actor/*=mean, time/*=max", {"actor/*": "mean", "time/*": "max"}),
        ("OTEL_RL_REDUCE", "reward=mean|p95", {"reward": ("mean", "p95")}),
        ("OTEL_RL_ROWS_QUANTILES", "0.5, 0.95", (0.5, 0.95)),
        ("OTEL_RL_ROWS_METRICS", "os:getcwd", "os:getcwd"),
        ("OTEL_RL_ROWS_METRICS", "actor/*, !*/lr", ("actor/*", "!*/lr")),
        ("OTEL_RL_ROWS_EVERY", "10", 10),
        ("OTEL_RL_FLOPS_PEAK", "989e12", 989e12),
        ("OTEL_RL_AGENT", "off", "off"),
        ("OTEL_RL_SET_GLOBAL", "true", True),
        ("OTEL_RL_QUIET", "1", True),
        ("OTEL_RL_ROWS_DEADLINE", "2.5", 2.5),
    ],
)
def test_environment(variable: str, text: str, expected: object) -> None:
    """A text in the environment becomes what the setting is."""
    settings = load({}, {variable: text})
    path = next((path for path, setting in known_settings().items() if setting.variable == variable), None)

    assert path is None or expected == operator.attrgetter(path)(settings)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("rank", np.int64(0), 0),
        ("quiet", np.True_, True),
        ("rows.deadline", np.float32(2.5), 2.5),
        ("rows.quantiles", [np.float64(0.5), np.float32(0.25)], (0.5, 0.25)),
        ("flops.peak", Decimal("1e15"), 1e15),
        ("dir", Path("a/b"), "a/b"),
    ],
)
def test_other_types(path: str, value: object, expected: object) -> None:
    """Numbers of NumPy and others are numbers, and a directory may be a `Path`."""
    group, _, name = path.rpartition(".")

    assert expected == operator.attrgetter(path)(load({group: {name: value}} if group else {name: value}, {}))


def test_project_of_a_script(tmp_path: Path) -> None:
    """Without a project it is named like the script."""
    (tmp_path / "train_grpo.py").write_text(
        "from otel_rl.recorder.settings.loading import load; print(load({}).project)"
    )
    script = "import runpy, sys; sys.argv = ['dir/train_grpo.py']; runpy.run_path('train_grpo.py')"

    assert run_python(script, tmp_path) == "train_grpo\n"


# Files


_TOML = """
project = "grpo"
rows.deadline = 3
exporters = ["jsonl", { wandb = { mode = "offline" } }]
[reduce]
"time/*" = "max"
"""
_YAML = """
project: grpo
rows: {deadline: 3}
exporters: [jsonl, {wandb: {mode: offline}}]
reduce: {time/*: max}
name:
"""


@pytest.mark.parametrize(
    ("path", "content"),
    [("otel-rl.toml", _TOML), ("otel-rl.yaml", _YAML), ("otel-rl.yml", _YAML), ("else/where.toml", _TOML)],
)
def test_file(path: str, content: str) -> None:
    """A file in the working directory, or the one that is named, holds settings as TOML or YAML."""
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(content)
    settings = load(ALONE, {} if path.startswith("otel-rl") else {"OTEL_RL_CONFIG_FILE": path})

    assert (settings.project, settings.rows.deadline, settings.reduce) == ("grpo", 3.0, {"time/*": "max"})
    assert settings.exporters == (ExporterSpec("jsonl"), ExporterSpec("wandb", {"mode": "offline"}))
    assert settings.name == "run-7"


def test_groups_are_merged() -> None:
    """Each field of a group has the value of the place that wins, whatever the other fields have."""
    Path("otel-rl.yaml").write_text("rows: {every: 5, deadline: 5, limit: 5}\nhardware: false")
    environ = {"OTEL_RL_ROWS_DEADLINE": "7", "OTEL_RL_HARDWARE_INTERVAL": "7"}
    found = load({"rows": {"limit": 9, "every": None}}, environ)

    assert (found.rows.every, found.rows.deadline, found.rows.limit) == (5, 7.0, 9)
    assert found.hardware == Hardware(enabled=False, interval=7.0)


def test_a_struct_sets_all_fields_of_its_group() -> None:
    """A struct is a whole group; only the other groups come from elsewhere."""
    environ = {"OTEL_RL_ROWS_EVERY": "5", "OTEL_RL_TRACES_BUDGET": "5"}
    found = load({"rows": Rows(deadline=3.0)}, environ)

    assert (found.rows, found.traces.budget) == (Rows(deadline=3.0), 5)


@pytest.mark.parametrize("given", [False, {"enabled": False}, Hardware(enabled=False)])
def test_hardware_is_switched_off(given: object) -> None:
    """`hardware=False` is short for the one setting."""
    assert load({"hardware": given}, {}).hardware == Hardware(enabled=False)
    assert load({}, {"OTEL_RL_HARDWARE": "false"}).hardware == Hardware(enabled=False)


def test_numbers_that_yaml_reads_as_texts() -> None:
    """YAML 1.1 takes a number such as 7e9 for a text."""
    Path("otel-rl.yaml").write_text("flops: {parameters: 7e9}\nrows: {deadline: 1e-1}")
    found = load({}, {})

    assert (found.flops.parameters, found.rows.deadline) == (7e9, 0.1)


def test_two_files(caplog: pytest.LogCaptureFixture) -> None:
    """A file that is ignored because of another one is named in a warning."""
    Path("otel-rl.toml").write_text("project = 'toml'")
    Path("otel-rl.yml").write_text("project: yaml")

    assert load({}, {}).project == "toml"
    assert "otel-rl.toml has the settings; otel-rl.yml is ignored: keep one of them" in caplog.text


def test_named_file_only() -> None:
    """One file is read: the one that is named, else the TOML file."""
    Path("otel-rl.toml").write_text("project = 'toml'")
    Path("otel-rl.yaml").write_text("name: yaml")
    Path("mine.yaml").write_text("role: mine")
    found, named = load(ALONE, {}), load(ALONE, {"OTEL_RL_CONFIG_FILE": "mine.yaml"})

    assert (found.project, found.name, found.role) == ("toml", "run-7", "")
    assert (named.project == "toml", named.name, named.role) == (False, "run-7", "mine")


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("otel-rl.toml", b"project =", ["otel-rl.toml", "cannot be read as settings"]),
        ("otel-rl.toml", b"project = '\xff'", ["otel-rl.toml", "cannot be read as settings"]),
        ("otel-rl.yaml", b"project: [", ["otel-rl.yaml", "cannot be read as settings"]),
        ("otel-rl.yaml", b"project: \xff", ["otel-rl.yaml", "cannot be read as settings"]),
        ("otel-rl.yaml", b"- project", ["otel-rl.yaml", "expected settings by name"]),
        ("otel-rl.toml", b"projct = 'x'", ["projct: 'x' in otel-rl.toml", "did you mean project?"]),
        (
            "otel-rl.yaml",
            b"1: 2",
            ["unknown setting 1: 2 in otel-rl.yaml", "known are: agent, archive_limit, autopsy"],
        ),
        ("otel-rl.yaml", b"rows: {every: -1}", ["rows.every: -1 in otel-rl.yaml", "of at least 0"]),
        ("otel-rl.yaml", b"rows: 5", ["rows: 5 in otel-rl.yaml", "must be a mapping"]),
        ("otel-rl.toml", b"[rows]\nevry = 1", ["rows.evry: 1 in otel-rl.toml", "did you mean every?"]),
        ("otel-rl.toml", b"rank = 'one'", ["rank: 'one' in otel-rl.toml", "must be a whole number"]),
        ("otel-rl.toml", b"rows.deadline = inf", ["rows.deadline: inf in otel-rl.toml", "above 0, at most 1e9"]),
        (
            "otel-rl.yaml",
            b"rows_every: 5",
            ["rows_every: 5 in otel-rl.yaml", "did you mean rows.every: … in"],
        ),
        ("otel-rl.yaml", b"rank: 0\nrank: 1", ["otel-rl.yaml", "`rank` is written twice, again in line 2"]),
        ("otel-rl.yaml", b"rows: {every: 1, every: 2}", ["`every` is written twice, again in line 1"]),
    ],
)
def test_bad_file(path: str, content: bytes, expected: list[str]) -> None:
    """Errors in a file name the file."""
    Path(path).write_bytes(content)
    text = refusal({})

    assert [part for part in expected if part not in text] == []


# Invalid settings


@pytest.mark.parametrize(
    ("keywords", "environ", "expected"),
    [
        ({}, {"OTEL_RL_PROJCT": "x"}, ["unknown variable OTEL_RL_PROJCT", "did you mean OTEL_RL_PROJECT?"]),
        ({}, {"OTEL_RL_RANK": "one"}, ["OTEL_RL_RANK='one'", "must be a whole number"]),
        ({}, {"OTEL_RL_QUIET": "perhaps"}, ["OTEL_RL_QUIET='perhaps'", "true or false", "yes or no, on or off"]),
        ({}, {"OTEL_RL_HARDWARE_ENABLED": "0"}, ["OTEL_RL_HARDWARE_ENABLED='0'", "did you mean OTEL_RL_HARDWARE?"]),
        ({}, {"OTEL_RL_TRACES": "1"}, ["OTEL_RL_TRACES='1': a group; set OTEL_RL_TRACES_RATIO, OTEL_RL_TRACES_BUDGET"]),
        ({}, {"OTEL_RL_ID": "1"}, ["did you mean OTEL_RL_RUN_ID?"]),
        ({}, {"OTEL_RL_CONFIG": "1"}, ["did you mean OTEL_RL_CONFIG_FILE?"]),
        ({}, {"OTEL_RL_TOKENS": "secret"}, ["OTEL_RL_TOKENS='[redacted]'; did you mean OTEL_RL_TOKEN?"]),
        ({"trace_ratio": 0.5}, {}, ["unknown setting trace_ratio=0.5; did you mean traces={'ratio': …}?"]),
        ({"every": 5}, {}, ["unknown setting every=5; did you mean rows={'every': …}?"]),
        ({"rows": {"deadline": float("inf")}}, {}, ["rows={'deadline': inf}", "a number above 0, at most 1e9"]),
        ({}, {"OTEL_RL_HARDWARE_INTERVAL": "Infinity"}, ["a number above 0, at most 1e9"]),
        ({}, {"OTEL_RL_IDLE_TIMEOUT": "1e300"}, ["a number above 0, at most 1e9"]),
        ({"flops": {"peak": float("inf")}}, {}, ["flops={'peak': inf}", "a number between 0 and 1e30"]),
        ({}, {"OTEL_RL_AGENT": "on"}, ["OTEL_RL_AGENT='on'", "'on'"]),
        ({"rank": "1"}, {}, ["rank='1'", "must be a whole number"]),
        ({"rank": 1.5}, {}, ["rank=1.5", "must be a whole number"]),
        ({"project": 7}, {}, ["project=7", "must be a text"]),
        ({"agent": "on"}, {}, ["agent='on'", "'on'"]),
        ({"rank": 4, "world_size": 4}, {}, ["rank=4", "world_size=4", "give both, or neither"]),
        ({"rank": -1}, {}, ["rank=-1"]),
        ({"rank": 3}, {}, ["rank=3", "world_size=1"]),
        ({"world_size": 0}, {}, ["world_size=0"]),
        ({"reduce": {"a/*": "median"}}, {}, ["'a/*'", "'median'", "mean, max, min, sum, last", "p50"]),
        ({"reduce": {"a/*": 1}}, {}, ["reduce=", "must be a mapping such as {'tokens': 'sum', "]),
        ({"reduce": {"loss": []}}, {}, ["'loss': name at least one statistic"]),
        ({"reduce": {"a/*": ["mean", "mode"]}}, {}, ["'a/*'", "'mode'"]),
        ({"rows": {"quantiles": [0.5, 95]}}, {}, ["rows={'quantiles': [0.5, 95]}", "each between 0 and 1"]),
        ({"rows": {"quantiles": 0.5}}, {}, ["must be a list such as [0.5, 0.95], each between 0 and 1"]),
        (
            {"rows": {"metrics": "slimm"}},
            {},
            ["rows={'metrics': 'slimm'}", "must be 'usual', 'full', a pattern"],
        ),
        ({"rows": {"every": -1}}, {}, ["rows={'every': -1}", "must be a whole number of at least 0"]),
        ({"head": "node0"}, {}, ["head='node0'", "host:port"]),
        (
            {"hardware": {"engines": ["node0:8000"]}},
            {},
            ["'node0:8000'", "a list of URLs such as ['http://node1:8000/metrics']"],
        ),
        ({"traces": {"ratio": 2}}, {}, ["traces={'ratio': 2}", "between 0 and 1"]),
        ({}, {"OTEL_RL_TRACES_RATIO": "2"}, ["OTEL_RL_TRACES_RATIO='2'", "between 0 and 1"]),
        ({"memory": {"peaks": "always"}}, {}, ["memory={'peaks': 'always'}", "'reset', 'shared'"]),
        ({"hardware": {"interval": 0}}, {}, ["hardware={'interval': 0}", "above 0"]),
        ({"rows": {"window": "median"}}, {}, ["rows={'window': 'median'}", "'last', 'mean'"]),
        ({"rows": {"limit": 0}}, {}, ["rows={'limit': 0}", "above 0"]),
        ({"rows": {"evry": 1}}, {}, ["unknown setting rows={'evry': 1}", "did you mean every?"]),
        ({}, {"OTEL_RL_PASSWORD": "hunter2"}, ["unknown variable OTEL_RL_PASSWORD='[redacted]'"]),
        ({"token": "hunter2"}, {}, ["unknown setting token='[redacted]'"]),
        ({"rows": {"password": "hunter2"}}, {}, ["unknown setting rows={'password': '[redacted]'}"]),
        ({"rows": {"metrics": lambda values: values}}, {}, ["other processes cannot import this function"]),
        ({}, {"OTEL_RL_ROWS_METRICS": "os:nothing"}, ["OTEL_RL_ROWS_METRICS='os:nothing'", "cannot be imported"]),
        ({"rows": 10}, {}, ["rows=10", "must be a mapping such as {'every': …}"]),
        ({"hardware": 1}, {}, ["hardware=1", "must be a mapping", "or false"]),
        ({}, {"OTEL_RL_FLOPS_PEAK": "many"}, ["OTEL_RL_FLOPS_PEAK='many'", "must be a number"]),
        ({"flops": {"peak": float("nan")}}, {}, ["flops={'peak': nan}", "must be a number"]),
        ({"rows": {"deadline": 0}}, {}, ["rows={'deadline': 0}", "above 0"]),
        ({}, {"OTEL_RL_IDLE_TIMEOUT": "-1"}, ["OTEL_RL_IDLE_TIMEOUT='-1'", "above 0"]),
        ({}, {"OTEL_RL_JOURNAL_LIMIT": "0"}, ["OTEL_RL_JOURNAL_LIMIT='0'", "above 0"]),
        ({"id": "a/b"}, {}, ["id='a/b'", "letters, digits"]),
        ({"id": ".."}, {}, ["id='..'", "letters, digits"]),
        ({"id": "a b"}, {}, ["id='a b'", "letters, digits"]),
        ({"role": "a/b"}, {}, ["role='a/b'", "letters, digits"]),
        ({"role": ".."}, {}, ["role='..'", "letters, digits"]),
        ({"exporters": 7}, {}, ["exporters=7", "expected a list such as"]),
        ({"exporters": {"wandb": {}}}, {}, ["exporters=", "expected a list such as"]),
        ({"exporters": [7]}, {}, ["7 is neither a name"]),
        ({"exporters": [None]}, {}, ["None is neither a name"]),
        ({"exporters": ["jsonl", {"jsonl": {}}]}, {}, ["'jsonl' is named twice"]),
        *(
            ({}, {"OTEL_RL_REDUCE": text}, ["expected pattern=statistic; several statistics with |"])
            for text in ("mean", "a/*=mean,b/*", "a/*=", "loss=mean,max")
        ),
        *(
            ({"exporters": [{"wandb": options}]}, {}, ["the options of 'wandb' must be a mapping"])
            for options in ("offline", True, 7, ["mode"])
        ),
        *(  # options reach the agent in a file
            ({"exporters": [{"wandb": {"mode": value}}]}, {}, ["the options of 'wandb' go to the agent as JSON", text])
            for value, text in ((float("inf"), "inf"), (object(), "is not a text, number, list or mapping"))
        ),
        ({}, {"OTEL_RL_CONFIG_FILE": "none.toml"}, ["none.toml: cannot be read as settings"]),
        ({"exporters": [Factory()]}, {}, ["neither a name, nor a mapping of options, nor a factory"]),
    ],
)
def test_bad_setting(keywords: dict[str, object], environ: dict[str, str], expected: list[str]) -> None:
    """The error names the setting, as it was given, and the fix."""
    text = refusal(keywords, environ)

    assert [part for part in expected if part not in text] == []


def test_several_ranks_without_an_id() -> None:
    """Several ranks whose launcher gives them no identity are asked for one."""
    with pytest.raises(SettingsError, match=r"4 ranks need one identity: set OTEL_RL_RUN_ID \(or id=\)"):
        load({"rank": 1, "world_size": 4}, {})


@pytest.mark.parametrize("environ", [{"OTEL_RL_RUN_ID": "run-7"}, PEERS])
def test_several_ranks_with_an_id(environ: dict[str, str]) -> None:
    """Several ranks whose environment identifies the run need nothing else."""
    assert load({"rank": 1, "world_size": 4}, environ).world_size == 4


def test_empty_id_beside_a_launcher() -> None:
    """An empty id counts as none: the ranks of a job still have one identity."""
    assert load({"id": ""}, PEERS).id == load({}, PEERS).id


# Exporters


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ()),
        ((), ()),
        (["wandb"], (ExporterSpec("wandb"),)),
        ("wandb", (ExporterSpec("wandb"),)),
        ("wandb,jsonl", (ExporterSpec("wandb"), ExporterSpec("jsonl"))),
        ([{"wandb": {"mode": "offline"}}], (ExporterSpec("wandb", {"mode": "offline"}),)),
        ([{"wandb": None, "jsonl": {}}], (ExporterSpec("wandb"), ExporterSpec("jsonl"))),
        ([{"jsonl": {"path": Path("a/b")}}], (ExporterSpec("jsonl", {"path": "a/b"}),)),
        (
            [{"mine": {"ratio": np.float32(0.5), "sizes": [np.int64(2)]}}],
            (ExporterSpec("mine", {"ratio": 0.5, "sizes": [2]}),),
        ),
        (["json:dumps"], (ExporterSpec("json:dumps"),)),
        ([{"json:dumps": {"indent": 2}}], (ExporterSpec("json:dumps", {"indent": 2}),)),
        ([Factory], (ExporterSpec(f"{__name__}:Factory"),)),
        ([make], (ExporterSpec(f"{__name__}:make"),)),
    ],
    ids=shown,
)
def test_exporters(given: Any, expected: tuple[ExporterSpec, ...]) -> None:
    """Exporters are names, names with options, or factories, in any mixture."""
    assert expected == load({"exporters": given}, {}).exporters


@pytest.mark.parametrize("factory", [a_lambda, functools.partial(make), lambda run: Factory()], ids=shown)
def test_factory_without_a_name(factory: object) -> None:
    """A factory that another process cannot import is kept, for a thread of this one."""
    (spec,) = load({"exporters": [factory]}, {}).exporters

    assert (spec.name, spec.factory) == ("in_process.0", factory)


def test_factory_of_main(tmp_path: Path) -> None:
    """A factory in the trainer's own script needs an agent to read from."""
    script = """
import otel_rl
class Mine:
    def __init__(self, run): pass
    def export(self, items): pass
    def shutdown(self): pass
try:
    otel_rl.init(exporters=[Mine], quiet=True, agent="off")
except otel_rl.SettingsError as error:
    print(error)
"""
    text = run_python(script, tmp_path)

    assert "cannot be imported by name" in text
    assert "define it at the top of a module that can be imported" in text


def test_nothing_is_left_of_a_wrong_setting(tmp_path: Path) -> None:
    """An `init` that fails makes no directory, and the next one works."""
    with pytest.raises(SettingsError):
        otel_rl.init(agent="off", dir=tmp_path / "runs", rank=7)

    assert not (tmp_path / "runs").exists()
    assert otel_rl.init(agent="off", dir=tmp_path / "runs", quiet=True).attempt == 0
