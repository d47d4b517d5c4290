"""OTLP in both directions: the connection that OpenTelemetry's variables describe, and the bridge that receives OTLP.

`agent`, `cli` and the OTLP exporters import it.
"""
