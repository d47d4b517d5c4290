"""The exporters that otel-rl ships with, one module for each."""
