"""One file per framework: hooks that record it without code changes, and loggers with its call shape.

Users and `cli` import it. It imports `trainer` and below.
"""
