"""What otel-rl costs a trainer and its machine, beside its peers; `python -m benchmarks` runs it all."""
