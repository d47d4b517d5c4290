"""The checks of `otel-rl doctor`, each in a file of its subject."""
