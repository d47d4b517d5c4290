"""`otel-rl demo`: a small transformer learns arithmetic by GRPO, on the CPU, while otel-rl records it."""
