"""`otel-rl demo`: a small transformer learns arithmetic by GRPO on the CPU, and otel-rl records it.

`cli` imports it. It uses the public names of `otel_rl` alone, as a trainer does.
"""
