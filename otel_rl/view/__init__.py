"""How runs are shown: `terminal` draws `otel-rl ls` and `otel-rl top`.

Screens show what `otel_rl.insight` says, and conclude nothing themselves. `cli` and `demo` import this room.
"""
