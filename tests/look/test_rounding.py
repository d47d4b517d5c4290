"""Python and JavaScript write a number in the same words, to the last digit."""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess

from otel_rl.look.page.scripts import script
from otel_rl.recorder.facts import wording
from tests.real_parts import needs_program

_RUN = """
const values = JSON.parse(require("fs").readFileSync(0, "utf8"));
const {numberText, wholeText, decimalsText, secondsText, percentText, bytesText} = $numbers;
const written = (value) => [numberText, wholeText, secondsText, percentText, bytesText].map((text) => text(value));
console.log(JSON.stringify(values.map((value) => [...written(value), decimalsText(value, 2)])));
"""
_HARD = (
    *(0.0, -0.0, 0.5, 1.5, 2.5, 0.125, 0.375, 2.675, 1.005, 9.995, 99.95, 999.5, 0.9995, 0.9994, 0.09995, 9.996e-5),
    *(999_499.6, 999_600.0, 999_999.5, 1e6, 1e21, 5e-324, 1.7976931348623157e308, 0.001, 0.00099, 0.0095, 0.0096),
    *(0.145, 0.285, 0.994999, 0.995, 0.9995, 0.99999, 1.0, 59.949, 59.95, 59.999, 89.5, 3599.5, 3630.0, 86_369.5),
    *(86_370.0, 86_399.0, 90_000.0, 1023.0, 1023.5, 1048064.0, 2.0**20, 2.0**30 - 2.0**19, 71.25 * 2**30),
)


def _drawn() -> list[float]:
    """Draw numbers of all sizes, among them many halves of a last digit, and multiples of units that are nearly one."""
    dice = random.Random(0)
    values = [*_HARD, *(-value for value in _HARD)]
    for _ in range(1000):
        digits, power = dice.randint(1, 10 ** dice.randint(1, 6)), dice.randint(-9, 12)
        values += [float(f"{digits}5e{power}"), dice.uniform(-1, 1) * 10.0**power, dice.random()]
        values.append(dice.choice((60, 3600, 86_400, 1024, 2**20, 2**30)) * (1 + dice.uniform(-1e-3, 1e-3)))
        values.append(math.ldexp(dice.random(), dice.randint(-1070, 1020)))
    return values


@needs_program("node")
def test_both_languages_round_alike() -> None:
    """Numbers, whole numbers, times, percents, bytes and decimals, for 5,000 numbers and the hard ones."""
    values = _drawn()
    program = [str(shutil.which("node")), "-e", f"{script('numbers')}\n{_RUN}"]
    answered = subprocess.run(program, check=True, input=json.dumps(values), capture_output=True, text=True)

    assert answered.stderr == ""
    expected = [
        [
            wording.number(value),
            wording.fixed(value, 0),
            wording.seconds(value),
            wording.percent(value),
            wording.memory(value),
            wording.decimals(value, 2),
        ]
        for value in values
    ]
    different = [pair for pair in zip(values, json.loads(answered.stdout), expected, strict=True) if pair[1] != pair[2]]
    assert different == []
