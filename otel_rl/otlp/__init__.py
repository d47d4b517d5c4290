"""OTLP in both directions: connections from OpenTelemetry's environment variables, and the bridge, which receives OTLP.

`agent`, `cli` and the OTLP exporters import it.
"""
