"""The verbs of `autopsy`: each module has the command of its own name, which `otel_rl.cli.commands` finds."""
