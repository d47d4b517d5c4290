"""The destinations that otel-rl ships with, one module for each."""
