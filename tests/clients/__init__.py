"""Programs of other languages that send OTLP."""
