"""Hooks: when they are put in, that they come out again, and that they break nothing."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_rl import Run
from otel_rl.frameworks import instrument
from otel_rl.frameworks.instrument import hook
from otel_rl.frameworks.patches import Patches, harmless
from otel_rl.recorder.journal.records import Record
from otel_rl.semconv.frameworks import Framework
from tests.processes import rows_of, start
from tests.recorder.trainer.reading import refusals

RecordsOf = Callable[..., list[Record]]


class Trainer:
    """Something to hook into."""

    def train(self, number: int = 1) -> int:
        """Double a number."""
        return 2 * number


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    """A module that is imported, with a trainer in it."""
    module = types.ModuleType("a_framework")
    module.Trainer = type("Trainer", (Trainer,), {"train": Trainer.train})  # type: ignore[attr-defined]
    sys.modules["a_framework"] = module
    yield module
    del sys.modules["a_framework"]


calls: list[Any] = []


def patch(module: Any, patches: Patches) -> None:
    """Note each call."""

    def train(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append((args, kwargs))
        return function(*args, **kwargs)

    patches.wrap(module, "Trainer.train", train)


def framework(tested: str = ">=0") -> Framework:
    return Framework(distribution="msgspec", tested=tested, hooks={"a_framework": f"{__name__}:patch"})


def test_what_is_called_at_the_end() -> None:
    """Hooks that another package removes itself, as PyTorch's are, go with the others, once."""
    removed: list[str] = []
    patches = Patches()
    patches.at_undo(lambda: removed.append("hook"))
    patches.undo()
    patches.undo()

    assert removed == ["hook"]


def test_a_hook_and_its_end(module: Any) -> None:
    """The original function is restored. A kept wrapper calls it without recording."""
    calls.clear()
    original = module.Trainer.train
    patches = hook(framework())
    kept = module.Trainer().train
    assert (kept(3), calls) == (6, [((3,), {})])
    patches.undo()

    assert module.Trainer.train is original
    assert (kept(4), calls) == (8, [((3,), {})])


def test_what_is_hooked_can_be_pickled_and_copied() -> None:
    """As without the hook: Ray sends the functions and methods that a script refers to."""
    patches, here, trainer = Patches(), sys.modules[__name__], Trainer()
    for path in ("double", "Trainer.train"):
        patches.wrap(here, path, lambda function, _, args, kwargs: 10 * function(*args, **kwargs))
    hooked = (double, Trainer.train, trainer.train)
    found = pickle.loads(pickle.dumps(hooked)), copy.deepcopy(hooked)
    answers = [(function(2), method(trainer, 2), bound(2)) for function, method, bound in found]
    patches.undo()

    assert answers == [(40, 40, 40)] * 2


def test_what_somebody_else_hooked_meanwhile_stays(module: Any) -> None:
    """The other hook stays around otel-rl's wrapper, which does nothing any more."""
    calls.clear()
    patches = hook(framework())
    ours = module.Trainer.train
    module.Trainer.train = lambda self, number: ours(self, number) + 1
    patches.undo()

    assert module.Trainer().train(5) == 11
    assert calls == []


def test_a_version_that_was_not_tried(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One warning that names what was; it is hooked all the same."""
    calls.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            hook(framework("<0.1,>=0.0.1"))
        module.Trainer().train()

    assert [text for text in caplog.messages if "was not tested" in text and "<0.1,>=0.0.1 was" in text] == [
        caplog.messages[0]
    ]
    assert calls


def test_a_function_that_is_no_more(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The rest of the framework is recorded."""
    del module.Trainer.train
    with caplog.at_level(logging.WARNING):
        hook(Framework(distribution="msgspec", hooks={"a_framework": f"{__name__}:patch_what_is_gone"}))

    assert "a_framework has no Trainer.evaluate; calls of it are not recorded" in caplog.text


def patch_what_is_gone(module: Any, patches: Patches) -> None:
    """Look for what another version had."""
    patches.wrap(module, "Trainer.evaluate", lambda function, *_: function())


def test_an_error_of_ours_is_counted(recording: Run, records_of: RecordsOf) -> None:
    """It never reaches the trainer."""
    with harmless("on_log"):
        raise ValueError("a bug")

    assert refusals(records_of(recording)) == {"on_log": 1}


def test_an_observer_gets_the_arguments_by_name(module: Any) -> None:
    """Before the call, or after it with the answer, which does not change; it gets nothing after `undo`."""
    seen: list[tuple[str, Any]] = []
    patches = Patches()
    patches.observe(module, "Trainer.train", ("number",), lambda _, given: seen.append(("after", given)))
    patches.observe(module, "Trainer.train", ("number",), lambda _, given: seen.append(("before", given)), first=True)

    assert [module.Trainer().train(3), module.Trainer().train(number=4)] == [6, 8]
    patches.undo()
    module.Trainer().train(5)
    assert seen == [
        (when, {"number": number} | answer)
        for number in (3, 4)
        for when, answer in (("before", {}), ("after", {"return": 2 * number}))
    ]


def test_names() -> None:
    """An unknown name is refused, with the known ones."""
    with pytest.raises(ValueError, match="unknown name 'keras': must be one of accelerate, areal, light"):
        instrument.instrument("keras")


def test_twice_is_once() -> None:
    """A second call changes nothing."""
    instrument.instrument("roll")
    before = instrument._active["roll"]
    instrument.instrument("roll")
    assert instrument._active["roll"] is before
    instrument.uninstrument("roll")

    assert "roll" not in instrument.active()


_TRAINER = """
import sys, torch
weight = torch.nn.Parameter(torch.ones(1))
torch.optim.SGD([weight]).step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "rank", "lines"),
    [("sys.exit(0)", "0", 1), ("sys.exit(3)", "0", 0), ("raise RuntimeError", "0", 0), ("", "1", 0)],
)
def test_nothing_was_recorded(end: str, rank: str, lines: int, tmp_path: Path) -> None:
    """One line says so, of the first rank, after a training that ended well."""
    (tmp_path / "train.py").write_text(_TRAINER + end)
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "train.py"]
    _, errors = start(command, tmp_path, LOCAL_RANK=rank).communicate(timeout=60)

    assert errors.count("otel-rl recorded nothing") == lines


_WRITES = """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("tb")
for step in range(3): writer.add_scalar("loss", 1.0, step)
writer.close()
"""
_FULL, _CLOSED, _UNREAD = "2>/dev/full", "2>&-", "2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}"


def _shell(command: str, directory: Path, **environment: str) -> tuple[int, str]:
    process = start(["bash", "-c", command], directory, **environment)
    output, _ = process.communicate(timeout=100)
    return process.returncode, output


@pytest.mark.slow
@pytest.mark.parametrize("output", [_FULL, _CLOSED, _UNREAD])
def test_messages_that_cannot_be_written_cost_no_step(output: str, tmp_path: Path) -> None:
    """A captured training is one run with all of its values, and ends as it does without otel-rl."""
    (tmp_path / "train.py").write_text(_WRITES)
    run = f"{sys.executable} -m otel_rl.cli run --capture tensorboard -- {sys.executable} train.py {output}"
    code, _ = _shell(run, tmp_path, OTEL_RL_HARDWARE="false")
    (directory,) = (path.parent for path in tmp_path.glob("runs/*/*/run.json"))
    _shell(f"{sys.executable} -m otel_rl.cli agent --once {directory}", tmp_path)

    assert code == 0
    assert [row["step"] for row in rows_of(directory)] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("output", [_FULL, _CLOSED])
def test_a_trainer_starts_without_a_place_for_messages(output: str, tmp_path: Path) -> None:
    """`otel-rl run` would say that nothing is recorded with `-I`."""
    run = f"{sys.executable} -m otel_rl.cli run -- {sys.executable} -I -c 'print(\"trained\")' {output}"

    assert _shell(run, tmp_path) == (0, "trained\n")


@pytest.mark.parametrize("output", [_FULL, _CLOSED])
def test_a_python_without_otel_rl_starts(output: str, tmp_path: Path) -> None:
    """It is not recorded, which cannot be said either; an exception in `sitecustomize` would end it."""
    (tmp_path / "otel_rl").mkdir()
    (tmp_path / "otel_rl" / "__init__.py").touch()
    paths = f"{tmp_path}:{Path(instrument.__file__).parent / 'site'}"

    assert _shell(f"{sys.executable} -c 'print(\"trained\")' {output}", tmp_path, PYTHONPATH=paths) == (0, "trained\n")
