"""The measurement of a framework's names against its dialect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_rl.frameworks.drift import of_run, of_source, sorted_out
from otel_rl.semconv.dialect import dialect

_SOURCE = '''
"""Loss: {"doc/string": 1}."""
def log(self, metrics, prefix, statistic):
    metrics["actor/pg_loss"] = 1
    metrics[f"critic/score/{statistic}"] = 1
    metrics.update({"actor/new_thing": 1, "rollout_corr/ppl_ratio": 1, "note": 1, f"val/{prefix}": 1})
    read = metrics["actor/only_read"]
    self.agent_loop({"agent_loop/slowest/tool_calls": 1})
'''


def drift(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool as a user does."""
    command = [sys.executable, "-m", "otel_rl.frameworks.drift", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A package with a test, which does not count."""
    (tmp_path / "package" / "tests").mkdir(parents=True)
    (tmp_path / "package" / "trainer.py").write_text(_SOURCE)
    (tmp_path / "package" / "broken.py").write_text("print 'Python 2'")
    (tmp_path / "package" / "tests" / "test_it.py").write_text('{"actor/of_a_test": 1}')
    return tmp_path / "package"


def test_names_of_a_source(source: Path) -> None:
    """They are the string keys with a slash that are stored, and no names that are put together elsewhere."""
    assert of_source(source) == {
        "trainer.py": {
            *("actor/pg_loss", "critic/score/\0", "actor/new_thing"),
            *("rollout_corr/ppl_ratio", "agent_loop/slowest/tool_calls"),
        }
    }


def test_names_of_lists_and_counters(tmp_path: Path) -> None:
    """Values may be collected in a list, summed in an item of one, and get a prefix that is a variable."""
    (tmp_path / "trainer.py").write_text("""
metrics[mode]["self_distillation/policy_loss"].append(1)
rates["rollout/turns_mean"][0] += 1
metrics[f"{prefix}rewards/chosen"] = 1
metrics[mode]["only/read"].copy()
""")
    (names,) = of_source(tmp_path).values()

    assert names == {"self_distillation/policy_loss", "rollout/turns_mean", "\0rewards/chosen"}
    assert sorted_out(names, "trl", whole=False).unknown == []


def test_three_kinds_of_names(source: Path) -> None:
    """A name has a meaning, or a reason why it has none, or is unknown; it may get a prefix elsewhere."""
    (names,) = of_source(source).values()
    found = sorted_out(names, "verl", whole=False)

    assert found.mapped == ["actor/pg_loss", "agent_loop/slowest/tool_calls", "critic/score/*"]
    assert found.declared == ["rollout_corr/ppl_ratio"]
    assert found.unknown == ["actor/new_thing"]
    assert found.known == 0.8


def test_a_catch_all_is_not_known() -> None:
    """A pattern with nothing but a placeholder after its first component declares nothing."""
    known = dialect("trinity")
    swallowed = [name for name in ("actor/any_new_name", "experience_pipeline/any_new_name") if known.passes(name)]

    assert sorted_out(swallowed, "trinity").declared == []


def test_a_phase_without_a_category() -> None:
    """The time of a phase that goodput does not know is mapped, and is listed."""
    assert sorted_out(["timing_s/gen", "timing_s/new_phase"], "verl").uncategorized == ["timing_s/new_phase"]


def test_names_of_a_run(tmp_path: Path) -> None:
    """They are those of its rows; those of otel-rl itself are left out. Its settings name the dialect."""
    rows = [{"step": 1, "values": {"actor/pg_loss": 1.0, "perf/goodput": 1.0}}, {"step": 2, "values": {"x/y": 1.0}}]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = sorted_out(of_run(tmp_path), "verl")

    assert (found.mapped, found.declared, found.unknown) == (["actor/pg_loss"], [], ["x/y"])
    assert drift(str(tmp_path), "--dialect", "verl").returncode == 1
    (tmp_path / "run.json").write_text('{"dialect": "tunix"}')
    assert "dialect tunix" in drift(str(tmp_path)).stdout


def test_the_command(source: Path) -> None:
    """It names the file of each unknown name, and fails below the share that was asked for."""
    failed = drift(str(source), "--dialect", "verl")
    passed = drift(str(source), "--dialect", "verl", "--at-least", "80")

    assert "trainer.py: unknown: actor/new_thing\n" in failed.stdout
    assert (failed.returncode, failed.stderr) == (1, "80.0 % of the names are known, less than 100 %\n")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert drift(str(source / "nothing")).returncode == 2
