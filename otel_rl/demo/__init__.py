"""`otel-rl demo`: a small transformer learns arithmetic by GRPO on the CPU, while otel-rl records it.

`grpo.py` is the trainer, and the example of how to record one: it uses only the public surface of otel-rl. Nothing
imports this room; `otel-rl` finds its verb.
"""
