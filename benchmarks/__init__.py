"""The cost of otel-rl for a trainer and its machine, compared with other libraries: `python -m benchmarks`."""
