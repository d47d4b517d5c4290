"""The verbs of the recorder: each module has the command of its own name, which `otel_rl.cli.commands` finds."""
