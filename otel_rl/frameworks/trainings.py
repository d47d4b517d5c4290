"""Which run a training gets: the trainings of each run in this process are counted.

A script may train several times: SFT, then DPO, then SFT. Each training counts its steps from the beginning, so each
gets its own series. One warning says how:

* If the script has not begun a run, each training is a run: `ID`, then `ID-2`, `ID-3` in the order of the trainings.
* If the script has begun a run, all trainings are in it. Names of the second training begin with `2/`, of the third one
  with `3/`. Their steps continue after the last step so far. So it is with trainers that train at the same time.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import otel_rl
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.loading import load
from otel_rl.recorder.settings.settings import GivenIdSettings, JobSettings
from otel_rl.recorder.trainer.current import recorder_of, steps_of
from otel_rl.recorder.trainer.opening import identified

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Never

    from otel_rl.recorder.trainer.no_span import NoSpan
    from otel_rl.recorder.trainer.run import Run
    from otel_rl.recorder.trainer.step import StepSpan

logger = log_of(__name__)
Place = tuple[str, str, str]
_trainings: dict[Place, int] = {}
"""The number of trainings of each run in this process, by directory, project and id."""
_promised: set[Place] = set()
"""The runs that `elsewhere` returned, which may also begin in this process."""


_NAMES = {"log": "values", "table": "name", "queue": "name", "completions": "name", "trained": "", "dropped": ""}
"""The methods of a run that have a step, and their argument with names."""


class LaterTraining:
    """A run for a later training: its names have a prefix, and its steps follow those of earlier trainings.

    Args:
        run: The run.
        number: The number of the training, from 2.
    """

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._prefix = f"{number}/"
        self._first = 1 + steps_of(run).highest

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._run, name)
        return partial(self._in_series, name, method) if name in _NAMES else method

    def step(self, number: int | None = None, /, *extra: Never, **attributes: object) -> StepSpan | NoSpan:
        """Return a context manager for a step."""
        return self._run.step(self._number(number), *extra, **attributes)

    def _in_series(
        self, name: str, method: Callable[..., None], *given: Any, step: int | None = None, **named: Any
    ) -> None:
        """Call a method of the run with the names and the step of this training."""
        try:
            argument = _NAMES[name]
            if name == "completions":
                named = {"name": name} | named
            if argument in named:
                named[argument] = self._renamed(named[argument])
            elif given and argument:
                given = (self._renamed(given[0]), *given[1:])
        except Exception as error:  # a foreign object's conversion may raise anything
            recorder_of(self._run).refuse_error(name, error)
        else:
            method(*given, step=self._number(step), **named)

    def _renamed(self, name: object) -> object:
        if isinstance(name, Mapping):
            return {f"{self._prefix}{option}": value for option, value in name.items()}
        return f"{self._prefix}{name}"

    def _number(self, step: int | None) -> int | None:
        try:
            return None if step is None else self._first + operator.index(step)
        except Exception:  # a foreign object's conversion may raise anything
            return step  # which the run refuses


def options_of_training(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a training's run: the given ones, from the second training on with another id and name."""
    chosen = load({name: value for name, value in options.items() if name != "config"})
    if isinstance(chosen, JobSettings):  # `init` numbers the trainings of a job
        return options
    place = str(Path(chosen.dir).absolute()), chosen.project, chosen.id
    if place in _promised:
        _promised.remove(place)
        return options
    number = _next(place)
    if number == 1:
        return options
    run_id = f"{chosen.id}-{number}"
    logger.warning(
        "run %s has a training of this process already, and steps begin again; training %d is recorded as run %s",
        chosen.id,
        number,
        run_id,
    )
    return options | {"id": run_id, "name": f"{chosen.name}-{number}"}


def elsewhere(options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of `otel_rl.init` with which other processes record the next training of this process.

    Args:
        options: The keywords that are given. The environment and the settings file win over the others.

    Raises:
        SettingsError: A setting is wrong.
    """
    chosen = load({name: value for name, value in options.items() if name != "config"})
    if isinstance(chosen, GivenIdSettings):
        chosen = identified(chosen)
    place = {"project": chosen.project, "id": chosen.id, "name": chosen.name, "dir": str(Path(chosen.dir).absolute())}
    run = otel_rl.current()
    if run is not None and _place(run) == (place["dir"], place["project"], place["id"]):
        _trainings.setdefault(_place(run), 1)  # this process is its rank 0
    _promised.discard((place["dir"], place["project"], place["id"]))
    settings = options_of_training(options | place)
    _promised.add((settings["dir"], settings["project"], settings["id"]))
    return settings


def _next(place: Place) -> int:
    _trainings[place] = number = _trainings.get(place, 0) + 1
    return number


def _place(run: Run) -> Place:
    return str(run.dir.parent.parent), run.dir.parent.name, run.id


def count(run: Run) -> None:
    """Count a run that a training began as its first training."""
    _trainings.setdefault(_place(run), 1)


def later_training(run: Run) -> Run:
    """Return a run for the next training in a run that the script began; the run itself for the first one."""
    number = _next(_place(run))
    if number == 1:
        return run
    logger.warning(
        "run %s has a training already, and steps begin again; names of training %d begin with '%d/', and its "
        "steps go on after the last one",
        *(run.id, number, number),
    )
    return cast("Run", LaterTraining(run, number))
