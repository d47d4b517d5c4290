"""Names that frameworks log: those that were read in their code, and those of the acceptance list."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

DATA = Path(__file__).parent.parent / "data"
CAPTURED = tuple(sorted(path.stem for path in (DATA / "names").glob("*.txt")))
"""The frameworks with a file of names that were read in their code."""
SEEDS = {
    "000 Tunix": "tunix",
    "001 ROLL": "roll",
    "002 MaxEnt-GRPO": "maxent_grpo",
    "003 Trinity-RFT": "trinity",
    "004 NeMo-RL": "nemo_rl",
}
ACCEPTED = tuple(SEEDS.values())
"""The frameworks of the acceptance list."""
FRAMEWORKS = tuple(sorted({*CAPTURED, *ACCEPTED}))


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
    """Return the rows of one framework in the acceptance list."""
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


def captured(framework: str) -> list[str]:
    """Return the names that were read in the framework's code; comments tell where."""
    if framework not in CAPTURED:
        return []
    lines = (DATA / "names" / f"{framework}.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def logged(framework: str) -> list[str]:
    """Return all names of a framework."""
    return list(dict.fromkeys([*captured(framework), *(row.name for row in rows(framework))]))
