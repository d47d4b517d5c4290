"""Tests of autopsies and of the checks of `otel-rl doctor`."""
