"""The command `otel-rl`, as `python -m otel_rl.cli`."""

from otel_rl.cli import main

main()
