"""Labelled scenarios: small programs with a known fault or none, and whether otel-rl names it."""
