"""Real names and configurations: nothing in them is redacted."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import msgspec
import pytest

from otel_rl.recorder.convert.attributes import clean_attributes
from otel_rl.recorder.convert.params import flatten
from otel_rl.recorder.secrets import is_secret, redact

DATA = Path(__file__).parents[2] / "data"
FRAMEWORKS: dict[str, dict[str, Any]] = msgspec.yaml.decode((DATA / "configurations.yaml").read_bytes())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_configurations(framework: str) -> None:
    """Parameters of a framework that have a word of a secret in their name or value stay as they are."""
    for name, values in FRAMEWORKS[framework]["values"].items():
        for value in values:
            expected = [] if value == {} else value if isinstance(value, list) else [value]
            assert list(flatten({name: value}).values()) == expected, name
            assert clean_attributes({name: value}) == ({} if value is None else {name: value})


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_text_with_all_of_a_configuration(framework: str) -> None:
    """The text of a whole configuration stays as it is too, as YAML, as JSON and as Python prints it."""
    values = {name: one for name, found in FRAMEWORKS[framework]["values"].items() for one in found}
    values = {name: one for name, one in values.items() if not is_secret(name)}  # such as `api_key: dummy`
    for text in (msgspec.yaml.encode(values).decode(), msgspec.json.encode(values).decode(), repr(values)):
        assert redact(text) == (text, 0)


def test_metrics_of_frameworks() -> None:
    """Names and descriptions of all metrics of the acceptance list stay as they are."""
    with (DATA / "metrics.csv").open() as file:
        for row in csv.reader(file):
            for cell in row:
                assert redact(cell) == (cell, 0)


def test_ten_frameworks() -> None:
    """There are at least ten frameworks, and many names."""
    assert len(FRAMEWORKS) >= 10
    assert sum(len(one["values"]) for one in FRAMEWORKS.values()) > 600
