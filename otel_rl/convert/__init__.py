"""Conversion of trainers' objects to plain values: numbers, attributes, parameters and tables, with secrets redacted.

`completions` makes the table of rollouts, and `printing` shows validation samples in a terminal: trainers call them.

Rooms above it and exporters import it. It imports `semconv`, `stats`, `export` and `errors`.
"""
