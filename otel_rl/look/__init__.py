"""How runs are shown: `terminal` draws `otel-rl ls` and `otel-rl top`, `page` the file of `otel-rl report`.

Screens show what `otel_rl.look.insight` says, and conclude nothing themselves. `cli` and `demo` import this room.
"""
