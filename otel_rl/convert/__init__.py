"""What trainers hold, as plain values: numbers, attributes, parameters, texts and tables, without secrets.

The rooms above it and exporters may import it; it imports `stats`, `semconv`, `export` and `errors`.
"""
