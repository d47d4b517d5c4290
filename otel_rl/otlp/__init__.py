"""OTLP in both directions: what its variables say of a connection, and the bridge that takes it from any SDK.

`agent`, `cli` and the OTLP exporters import it.
"""
