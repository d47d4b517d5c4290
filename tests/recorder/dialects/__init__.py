"""A framework of the tests: the recorder needs some dialect, and the real ones belong to a wing."""

from __future__ import annotations

from otel_rl.semconv.frameworks import Framework

FRAMEWORKS = {"toyrl": Framework(modules=("toyrl",))}
