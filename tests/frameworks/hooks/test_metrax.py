"""metrax's protocol of backends, and listeners of JAX."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import rows_of, run_python
from tests.real_parts import needs

_LISTENER = """
import jax, jax.monitoring, numpy
from otel_rl.frameworks.metrax import LoggingBackend
backend = LoggingBackend(project="p", id="run", quiet=True, hardware=False)
jax.monitoring.register_scalar_listener(backend.log_scalar)
backend.log_scalar("actor/train/kl", numpy.float32(0.5))
for n in range(3):
    jax.monitoring.record_scalar("/actor/train/loss", n / 3, step=n)
backend.log_scalar("actor/train/array", jax.numpy.ones(()), step=2)
backend.log_scalar("actor/train/none", None, step="one")
backend.close()
backend.close()
jax.monitoring.record_scalar("/actor/train/loss", 1.0, step=3)
"""


@pytest.mark.slow
@needs("jax")
def test_a_listener_of_jax(tmp_path: Path) -> None:
    """A leading slash goes, a missing step is 0, nothing raises, and values after `close` belong to other loggers."""
    run_python(_LISTENER, tmp_path, JAX_PLATFORMS="cpu")
    rows = rows_of(tmp_path / "runs" / "p" / "run")
    values = [row["values"] for row in rows]

    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["actor/train/loss"] for row in values] == [0.0, 1 / 3, 2 / 3]  # type: ignore[index]
    assert (values[0]["actor/train/kl"], values[2]["actor/train/array"]) == (0.5, 1.0)  # type: ignore[index]
