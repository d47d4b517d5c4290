"""OTLP: connections from OpenTelemetry's environment variables, and the bridge, which receives OTLP for exporters.

`agent`, `cli` and the OTLP exporters import it.
"""
