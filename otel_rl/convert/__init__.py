"""Conversion of what trainers hold into plain values: numbers, attributes, parameters and tables, without secrets.

Rooms above it and exporters import it. It imports `semconv`, `stats`, `export` and `errors`.
"""
