"""Conversion of trainers' objects to plain values: numbers, attributes, parameters and tables, with secrets redacted.

Rooms above it and exporters import it. It imports `semconv`, `stats`, `export` and `errors`.
"""
