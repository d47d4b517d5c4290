"""`python -m otel_rl.cli` is `otel-rl`."""

from otel_rl.cli import main

main()
