"""Every kind of wrong value for each setting of `init`: refused in otel-rl's words, or taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import otel_rl
from otel_rl.recorder.settings.loading import known_settings, load
from otel_rl.recorder.settings.settings import FOR_OPERATORS, Settings
from tests.faults.test_hostile_arguments import WRONG


def refusal(**given: Any) -> str | None:
    try:
        otel_rl.init(**given).finish(0)
    except otel_rl.SettingsError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_init_raises_nothing_but_settings_errors(tmp_path: Path, name: str) -> None:
    """Each wrong value of each setting is refused in one line that names the setting, or it is taken."""
    for wrong in WRONG[1:]:
        given: dict[str, Any] = {"agent": "off", "exporters": [], "dir": tmp_path, "quiet": True, name: wrong()}
        error = refusal(**given)

        assert error is None or (name.rstrip("s") in error and "\n" not in error)


@pytest.mark.parametrize("path", [path for path in known_settings() if "." in path or path in FOR_OPERATORS])
def test_each_field_of_a_group(path: str) -> None:
    """The same for the settings in groups, and for those of operators, which a file may have with any type."""
    group, _, name = path.rpartition(".")
    for wrong in WRONG[1:]:
        given: dict[str, Any] = {group: {name: wrong()}} if group else {name: wrong()}
        error = None
        try:
            load(given, {})
        except otel_rl.SettingsError as refused:
            error = str(refused)

        assert error is None or (path.replace(".", "={'") in error and "\n" not in error)


@pytest.mark.parametrize(
    ("given", "named", "told"),
    [
        ((), {"exporter": ["jsonl"]}, "unknown setting exporter=['jsonl']; did you mean exporters?"),
        ((), {"foo": 1}, "unknown setting foo=1; known are: agent, "),
        ((), {"dialect": "verlx"}, "verl"),
        (("my-project",), {}, "init('my-project'): give settings by name, such as project="),
    ],
)
def test_settings_that_do_not_exist(given: tuple[Any, ...], named: dict[str, Any], told: str) -> None:
    """The error names the nearest setting, or all."""
    with pytest.raises(otel_rl.SettingsError) as caught:
        otel_rl.init(*given, **named)
    assert told in str(caught.value)
