"""FLOPs, counted by torch and made use of."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.trainer.flops import count_flops
from tests.processes import rows_of
from tests.real_parts import part


@pytest.mark.slow  # torch's counter imports sympy and 800 other modules
def test_a_linear_layer() -> None:
    """Forward and backward of a matrix product are 6 FLOPs for each parameter and row."""
    torch = part("torch")
    layer = torch.nn.Linear(32, 16, bias=False)
    batch = torch.randn(8, 32, requires_grad=True)

    assert count_flops(lambda: layer(batch).sum().backward()) == 6 * 32 * 16 * 8


def test_what_was_counted_gives_the_utilisation(tmp_path: Path) -> None:
    """FLOPs that are logged under the registry's name count before any rule of thumb."""
    run = otel_rl.init(dir=tmp_path, quiet=True, flops={"parameters": 1e9, "peak": 1e12})
    with run.step(0), run.phase("update_actor", tokens=10):
        run.log({"rl.train.flops": 5_000_000})
    assert run.finish()
    values = rows_of(run.dir)[0]["values"]

    assert values["perf/mfu"] * values["time/step"] * 1e12 == pytest.approx(5_000_000)  # type: ignore[index]
