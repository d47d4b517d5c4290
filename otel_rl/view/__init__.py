"""How runs are shown. Screens show what `otel_rl.insight` says, and conclude nothing themselves."""
