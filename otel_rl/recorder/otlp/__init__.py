"""OTLP: connections from OpenTelemetry's environment variables, and the HTTP server of all listeners.

`agent`, `serve` and the exporters import it.
"""
